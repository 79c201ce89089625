"""What happened, as values: what was asked and told, what the target saw, what the ledger says."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.acceptance.recording_target import Call

UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
}
RECOVERY: Final = timedelta(seconds=30)  # after healing, beside the work
ATTEMPTS: Final = 5  # of a run whose schedule says nothing about retries

Row = Mapping[str, Any]  # of a table


class Verb(StrEnum):
    PUT = "put"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"


def duration(text: str) -> timedelta:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * UNITS[unit]


@dataclass(frozen=True)
class Operation:
    """`told_at` None: nobody answered, so it may have been done or not."""

    key: str
    verb: Verb
    asked_at: datetime
    notified_at: datetime | None
    body: Mapping[str, Any] = field(default_factory=dict)  # of a put
    answer: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None

    @property
    def in_flight(self) -> frozenset[str]:
        return frozenset(self.answer.get("in_flight") or ())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Outage:
    """A fault from its beginning to its healing."""

    row: str
    struck_at: datetime
    healed_at: datetime
    lapses: bool  # whether an executor may have gone between an effect and its record
    recovery: timedelta = RECOVERY
    pause: timedelta | None = None  # the longest that it may hold up a run, even while it lasts

    def over(self, ready: datetime) -> datetime:
        """When a run that was ready amid it has to have begun, beside the work."""
        if self.pause is not None:
            return ready + self.pause
        return max(self.healed_at, ready) + self.recovery


@dataclass(frozen=True)
class History:
    operations: Sequence[Operation]
    calls: Sequence[Call]
    runs: Sequence[Row]
    attempts: Sequence[Row]
    outages: Sequence[Outage]
    ended_at: datetime


@dataclass(frozen=True)
class Course:
    """All that there is of one schedule."""

    key: str
    operations: Sequence[Operation]  # as they were asked
    calls: Sequence[Call]  # as they came
    runs: Mapping[datetime, Row]
    attempts: Mapping[datetime, Sequence[Row]]
    outages: Sequence[Outage]

    @property
    def first(self) -> Operation:
        return self.operations[0]

    @property
    def body(self) -> Mapping[str, Any]:
        """Timetable and policies; a later put of the same schedule changes neither."""
        return self.first.body

    @property
    def when(self) -> Mapping[str, Any]:
        when: Mapping[str, Any] = self.body["when"]
        return when

    @property
    def schedule_id(self) -> str | None:
        return next((str(op.answer["id"]) for op in self.operations if "id" in op.answer), None)

    @property
    def overlap(self) -> str:
        return str(self.body.get("overlap", "allow"))

    @property
    def is_sequential(self) -> bool:
        return "until" in self.when or self.when.get("from") == "completion"

    @property
    def max_attempts(self) -> int:
        return int(self.body.get("retry", {}).get("max_attempts", ATTEMPTS))

    @property
    def backoff(self) -> timedelta | None:
        """Between two attempts, if that is one certain time."""
        backoff = self.body.get("retry", {}).get("backoff", {})
        is_certain = backoff.get("jitter") == "none" and backoff.get("factor") == 1
        return duration(backoff["base"]) if is_certain else None

    @property
    def is_doomed(self) -> bool:
        """Whether its target fails more often than it is tried."""
        asked = parse_qs(urlsplit(self.body["target"]["http"]["url"]).query)
        return "broken" in asked or int(asked.get("fail", ["0"])[0]) >= self.max_attempts

    def said(self, verb: Verb) -> list[Operation]:
        """Those that were done, and those that may have been."""
        return [op for op in self.operations if op.verb is verb and op.refused is None]

    def attempt_of(self, call: Call) -> Row | None:
        """The record of the attempt that made this call."""
        rows = self.attempts.get(call.scheduled_for, ())
        same = sorted(
            other.token
            for other in self.calls
            if (other.run_id, other.attempt) == (call.run_id, call.attempt)
        )
        numbered = [row for row in rows if row["number"] == call.attempt]
        place = same.index(call.token)
        return numbered[place] if place < len(numbered) else None

    def disturbances(self, moment: datetime) -> list[Outage]:
        """Faults that were there, or that had healed and were not yet to be over."""
        return [o for o in self.outages if o.struck_at <= moment <= o.healed_at + o.recovery]
