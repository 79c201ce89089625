"""Small histories for tests of the checker: by default three times, each with one run."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import run_id
from tests.chaos.checker import check_history
from tests.chaos.history import History, Operation, Outage, Verb
from tests.chaos.result import CheckResult, FindingKind

NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
ID: Final = str(UUID(int=7))
OTHER_ID: Final = str(UUID(int=8))


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def put(
    when: dict[str, Any], *, answered: float | None = 0.1, version: str = "v1", **more: Any
) -> Operation:
    query = more.pop("query", "")
    target = {"http": {"url": f"http://127.0.0.1:1/x{query}", "json": {"version": version}}}
    return Operation(
        key="k",
        verb=Verb.PUT,
        sent_at=at(0),
        answered_at=None if answered is None else at(answered),
        body={"key": "k", "when": when, "target": target, **more},
        response={"id": ID, "next_at": []} if answered is not None else {},
    )


def operation(verb: Verb, *, sent: float, answered: float | None, **response: Any) -> Operation:
    return Operation(
        key="k",
        verb=verb,
        sent_at=at(sent),
        answered_at=None if answered is None else at(answered),
        response=response,
    )


def call(time: float, *, started: float | None = None, duration: float = 0.1, **more: Any) -> Call:
    started = time + 0.01 if started is None else started
    default = Call(
        run_id=run_id(ID, at(time)),
        schedule_id=ID,
        scheduled_for=at(time),
        attempt=1,
        token=2,
        replay=None,
        idempotency_key=run_id(ID, at(time)),
        body='{"version":"v1"}',
        started_at=at(started),
        finished_at=at(started + duration),
        ok=True,
    )
    return replace(default, **more)


def row(time: float, state: str = "succeeded", reason: str | None = None, **more: Any) -> Any:
    is_finished = state not in {"staged", "running", "retrying"}
    return {
        "schedule_id": UUID(ID),
        "scheduled_for": at(time),
        "state": state,
        "reason": reason,
        "attempt": 1 if state in {"succeeded", "dead"} else 0,
        "replay_number": 0,
        "lease_holder": None,
        "finished_at": at(time + 1) if is_finished else None,
        "range_until": None,
    } | more


def attempt(time: float, outcome: str = "succeeded", number: int = 1) -> Any:
    return {
        "finished_at": at(time + 0.1),
        "schedule_id": UUID(ID),
        "scheduled_for": at(time),
        "replay_number": 0,
        "number": number,
        "outcome": outcome,
    }


@dataclass(kw_only=True)
class SampleHistory:
    """A history that a test changes and then checks."""

    operations: list[Operation] = field(
        default_factory=lambda: [put({"every": "1s", "start": str(at(1)), "end": str(at(3))})]
    )
    calls: list[Call] = field(default_factory=lambda: [call(k) for k in (1, 2, 3)])
    runs: list[Any] = field(default_factory=lambda: [row(k) for k in (1, 2, 3)])
    attempts: list[Any] = field(default_factory=lambda: [attempt(k) for k in (1, 2, 3)])
    outages: Sequence[Outage] = ()

    def check(self) -> CheckResult:
        return check_history(
            History(
                operations=self.operations,
                calls=self.calls,
                runs=self.runs,
                attempts=self.attempts,
                outages=self.outages,
            )
        )

    def kinds(self) -> set[FindingKind]:
        return {finding.kind for finding in self.check().findings}

    def without(self, index: int) -> "SampleHistory":
        """Delete the call, the row and the attempt of one run."""
        for each in (self.calls, self.runs, self.attempts):
            del each[index]
        return self


CRASH: Final = Outage(row="6", started_at=at(0.5), ended_at=at(5), can_expire_leases=True)
DISCONNECTION: Final = Outage(row="17", started_at=at(0.5), ended_at=at(5), can_expire_leases=False)


def with_expired_lease(outage: Outage) -> SampleHistory:
    """Return a history whose second run has an attempt after the end of its first lease."""
    history = SampleHistory(outages=[outage])
    history.calls.append(call(2, started=2.5, attempt=2, token=4))
    second = attempt(2, number=2)
    history.attempts = [attempt(1), attempt(2, "lease_expired"), second, attempt(3)]
    history.runs[1]["attempt"] = 2
    return history
