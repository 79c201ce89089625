"""Histories of a round, as values: operations, calls of the target, rows of the ledger, outages."""

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
RECOVERY: Final = timedelta(seconds=30)  # after a fault, in addition to the waiting work
DEFAULT_ATTEMPTS: Final = 5  # of a run whose schedule has no retry policy

Row = Mapping[str, Any]  # of a table


class Verb(StrEnum):
    """The commands of the load."""

    PUT = "put"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"


def duration(text: str) -> timedelta:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * UNITS[unit]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One command and its response.

    The command may have been applied or not if `answered_at` is None.
    """

    key: str
    verb: Verb
    sent_at: datetime
    answered_at: datetime | None
    body: Mapping[str, Any] = field(default_factory=dict)  # of a put
    response: Mapping[str, Any] = field(default_factory=dict)
    error_code: str | None = None  # of a rejected command

    @property
    def in_flight(self) -> frozenset[str]:
        return frozenset(self.response.get("in_flight") or ())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def schedule_id_of(operations: Sequence[Operation]) -> str | None:
    return next((str(op.response["id"]) for op in operations if "id" in op.response), None)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """The time of one fault."""

    row: str
    started_at: datetime
    ended_at: datetime
    can_expire_leases: bool  # an executor may fail between an effect and its record
    recovery: timedelta = RECOVERY
    max_delay: timedelta | None = None  # the longest delay of a run, even during the fault

    def deadline(self, ready_at: datetime) -> datetime:
        """Return the latest start of a run that was ready during the fault, without its work."""
        if self.max_delay is not None:
            return ready_at + self.max_delay
        return max(self.ended_at, ready_at) + self.recovery


@dataclass(frozen=True, kw_only=True)
class History:
    """The complete record of one round."""

    operations: Sequence[Operation]
    calls: Sequence[Call]
    runs: Sequence[Row]
    attempts: Sequence[Row]
    outages: Sequence[Outage]


@dataclass(frozen=True, kw_only=True)
class ScheduleHistory:
    """The part of a history that belongs to one schedule."""

    key: str
    operations: Sequence[Operation]  # in the order of their commands
    calls: Sequence[Call]  # in the order of their starts
    runs: Mapping[datetime, Row]
    attempts: Mapping[datetime, Sequence[Row]]
    outages: Sequence[Outage]

    @property
    def first(self) -> Operation:
        return self.operations[0]

    @property
    def body(self) -> Mapping[str, Any]:
        """The times and policies. A later put of the same schedule changes neither."""
        return self.first.body

    @property
    def when(self) -> Mapping[str, Any]:
        when: Mapping[str, Any] = self.body["when"]
        return when

    @property
    def schedule_id(self) -> str | None:
        return schedule_id_of(self.operations)

    @property
    def overlap(self) -> str:
        return str(self.body.get("overlap", "allow"))

    @property
    def is_sequential(self) -> bool:
        return "until" in self.when or self.when.get("from") == "completion"

    @property
    def max_attempts(self) -> int:
        return int(self.body.get("retry", {}).get("max_attempts", DEFAULT_ATTEMPTS))

    @property
    def backoff(self) -> timedelta | None:
        """The time between two attempts, if the policy fixes it."""
        backoff = self.body.get("retry", {}).get("backoff", {})
        is_fixed = backoff.get("jitter") == "none" and backoff.get("factor") == 1
        return duration(backoff["base"]) if is_fixed else None

    @property
    def is_always_failing(self) -> bool:
        """The target fails at least as often as the policy permits attempts."""
        query = parse_qs(urlsplit(self.body["target"]["http"]["url"]).query)
        return "broken" in query or int(query.get("fail", ["0"])[0]) >= self.max_attempts

    def not_rejected(self, verb: Verb) -> list[Operation]:
        """Return the operations that were applied, or that may have been applied."""
        return [op for op in self.operations if op.verb is verb and op.error_code is None]

    def attempt_of(self, call: Call) -> Row | None:
        """Return the row of the attempt that made the call."""
        rows = self.attempts.get(call.scheduled_for, ())
        tokens = sorted(
            other.token
            for other in self.calls
            if (other.run_id, other.attempt) == (call.run_id, call.attempt)
        )
        numbered = [row for row in rows if row["number"] == call.attempt]
        index = tokens.index(call.token)
        return numbered[index] if index < len(numbered) else None

    def outages_at(self, time: datetime) -> list[Outage]:
        """Return the faults that were active, or whose recovery had not ended."""
        return [o for o in self.outages if o.started_at <= time <= o.ended_at + o.recovery]
