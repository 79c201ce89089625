"""Small histories for tests of the judge: three instants, each run once, unless it is changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import run_id
from tests.chaos.checker import judge
from tests.chaos.history import History, Operation, Outage, Verb
from tests.chaos.result import Kind, Verdict

NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
ID: Final = str(UUID(int=7))
OTHER: Final = str(UUID(int=8))


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def put(
    when: dict[str, Any], *, told: float | None = 0.1, says: str = "v1", **more: Any
) -> Operation:
    behaviour = more.pop("behaviour", "")
    hook = {"http": {"url": f"http://127.0.0.1:1/x{behaviour}", "json": {"says": says}}}
    body = {"key": "k", "when": when, "target": hook, **more}
    answer = {"id": ID, "next_at": []} if told is not None else {}
    return Operation("k", Verb.PUT, at(0), None if told is None else at(told), body, answer)


def said(verb: Verb, asked: float, told: float | None, **answer: Any) -> Operation:
    return Operation("k", verb, at(asked), None if told is None else at(told), {}, answer)


def call(instant: float, *, began: float | None = None, lasted: float = 0.1, **more: Any) -> Call:
    began = instant + 0.01 if began is None else began
    given = Call(
        run_id=run_id(ID, at(instant)),
        schedule_id=ID,
        scheduled_for=at(instant),
        attempt=1,
        token=2,
        idempotency_key=run_id(ID, at(instant)),
        body='{"says":"v1"}',
        started_at=at(began),
        finished_at=at(began + lasted),
        ok=True,
    )
    return replace(given, **more)


def row(instant: float, state: str = "succeeded", reason: str | None = None, **more: Any) -> Any:
    is_over = state not in {"staged", "running", "retrying"}
    return {
        "schedule_id": UUID(ID),
        "scheduled_for": at(instant),
        "state": state,
        "reason": reason,
        "attempt": 1 if state in {"succeeded", "dead"} else 0,
        "replay_number": 0,
        "lease_holder": None,
        "finished_at": at(instant + 1) if is_over else None,
        "range_until": None,
    } | more


def attempt(instant: float, outcome: str = "succeeded", number: int = 1) -> Any:
    return {
        "finished_at": at(instant + 0.1),
        "schedule_id": UUID(ID),
        "scheduled_for": at(instant),
        "replay_number": 0,
        "number": number,
        "outcome": outcome,
    }


@dataclass
class Past:
    """To be changed by a test, then judged."""

    operations: list[Operation] = field(
        default_factory=lambda: [put({"every": "1s", "start": str(at(1)), "end": str(at(3))})]
    )
    calls: list[Call] = field(default_factory=lambda: [call(k) for k in (1, 2, 3)])
    runs: list[Any] = field(default_factory=lambda: [row(k) for k in (1, 2, 3)])
    attempts: list[Any] = field(default_factory=lambda: [attempt(k) for k in (1, 2, 3)])
    outages: Sequence[Outage] = ()

    def judged(self) -> Verdict:
        return judge(
            History(self.operations, self.calls, self.runs, self.attempts, self.outages, at(100))
        )

    def kinds(self) -> set[Kind]:
        return {finding.kind for finding in self.judged().findings}

    def without(self, place: int) -> "Past":
        """That run never was."""
        for each in (self.calls, self.runs, self.attempts):
            del each[place]
        return self


CRASH: Final = Outage("6", at(0.5), at(5), lapses=True)
CUT: Final = Outage("17", at(0.5), at(5), lapses=False)


def lapsed_once(outage: Outage) -> Past:
    past = Past(outages=[outage])
    past.calls.append(call(2, began=2.5, attempt=2, token=4))
    past.attempts = [attempt(1), attempt(2, "lease_expired"), attempt(2, number=2), attempt(3)]
    past.runs[1]["attempt"] = 2
    return past
