"""The verdict: the expected runs compared with the ledger and the calls of the target. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from math import ceil

from harebell.client import RunView
from harebell.dev.demo.schedules import DemoSchedule, ExpectedEnd, expected_runs
from harebell.domain.run_states import ENDED, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRun:
    """A run in the ledger. `late_ms` is the lateness of the first start, and None for a replay."""

    run_id: str
    key: str
    due_at: datetime
    started_at: datetime | None  # of the latest attempt
    late_ms: float | None
    attempt: int
    replay_number: int
    state: RunState

    @classmethod
    def of(cls, view: RunView) -> "LedgerRun":
        return cls(
            run_id=view.run_id,
            key=view.key or "",
            due_at=view.due_at,
            started_at=view.started_at,
            late_ms=view.late_ms,
            attempt=view.attempt,
            replay_number=view.replay_number,
            state=RunState(view.state),
        )

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class TargetCall:
    """A call in the file of the target."""

    run_id: str
    started_at: datetime
    is_success: bool  # the target responded with 200

    @classmethod
    def parse(cls, line: str) -> "TargetCall":
        fields = json.loads(line)
        return cls(
            run_id=fields["run_id"],
            started_at=datetime.fromisoformat(fields["started_at"]),
            is_success=fields["status"] == HTTPStatus.OK,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoVerdict:
    """The counts of the demo.

    A missing run was expected and neither executed nor cancelled on request. A duplicated run was
    executed without being expected.
    """

    expected: int
    ran: int
    cancelled: int
    missing: int
    duplicated: int
    early: int
    lateness: Sequence[float]  # of the first calls [ms], ascending

    @property
    def has_passed(self) -> bool:
        return self.missing == self.duplicated == self.early == 0

    def __str__(self) -> str:
        counts = ("expected", "ran", "cancelled", "missing", "duplicated", "early")
        text = ", ".join(f"{name} {getattr(self, name)}" for name in counts)
        p50, p99 = (percentile(self.lateness, share) for share in (0.5, 0.99))
        return f"{text}, lateness p50/p99 {p50}/{p99} ms"


def judge(
    schedules: Sequence[DemoSchedule],
    attempts: Mapping[LedgerRun, int],
    calls: Sequence[TargetCall],
) -> DemoVerdict:
    """Return the verdict. `attempts` contains every run of the ledger with its attempts."""
    calls_of = {run: [call for call in calls if call.run_id == run.run_id] for run in attempts}
    ran = Counter(run.key for run, run_calls in calls_of.items() if _ran(run, run_calls))
    cancelled = Counter(run.key for run in attempts if run.state is RunState.CANCELLED)
    unwanted = {
        schedule.key for schedule in schedules if schedule.expected_end is ExpectedEnd.CANCELLED
    }
    accounted = ran + Counter({key: cancelled[key] for key in unwanted})
    unknown = len(calls) - sum(map(len, calls_of.values()))
    surplus = sum(_surplus(run_calls, attempts[run]) for run, run_calls in calls_of.items())
    return DemoVerdict(
        expected=expected_runs(schedules),
        ran=ran.total(),
        cancelled=cancelled.total(),
        missing=sum(max(0, each.expected - accounted[each.key]) for each in schedules),
        duplicated=unknown
        + surplus
        + sum(max(0, ran[each.key] - each.expected) for each in schedules)
        + sum(ran[key] for key in unwanted),
        early=sum(
            _late_ms(run, call) < 0 for run, run_calls in calls_of.items() for call in run_calls
        ),
        lateness=sorted(
            _late_ms(run, run_calls[0]) for run, run_calls in calls_of.items() if run_calls
        ),
    )


def percentile(ordered: Sequence[float], share: float) -> str:
    """Return the percentile by the nearest rank, or a dash without values."""
    return f"{ordered[ceil(share * len(ordered)) - 1]:.1f}" if ordered else "-"


def _ran(run: LedgerRun, calls: Sequence[TargetCall]) -> bool:
    """Return whether both the ledger and the target record a success."""
    return run.state is RunState.SUCCEEDED and any(call.is_success for call in calls)


def _surplus(calls: Sequence[TargetCall], attempts: int) -> int:
    """Return the calls without an attempt, or the successes after the first one."""
    return max(len(calls) - attempts, sum(call.is_success for call in calls) - 1, 0)


def _late_ms(run: LedgerRun, call: TargetCall) -> float:
    return (call.started_at - run.due_at).total_seconds() * 1000
