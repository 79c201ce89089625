"""What is known of the runs, from two sides: a row of the ledger, and a call the target got."""

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


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """As the ledger has it. `late_ms` is of the first start; a replay has none."""

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
    """As the target wrote it down."""

    run_id: str
    started_at: datetime
    well: bool  # whether it was answered with 200

    @classmethod
    def parse(cls, line: str) -> "TargetCall":
        fields = json.loads(line)
        return cls(
            run_id=fields["run_id"],
            started_at=datetime.fromisoformat(fields["started_at"]),
            well=fields["status"] == HTTPStatus.OK,
        )


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """`lost`: owed, neither done nor cancelled as asked. `doubled`: done, not owed (any more)."""

    owed: int
    ran: int
    cancelled: int
    lost: int
    doubled: int
    early: int
    lateness: Sequence[float]  # ms, of the first calls, least first

    @property
    def good(self) -> bool:
        return self.lost == self.doubled == self.early == 0

    def __str__(self) -> str:
        counts = ("owed", "ran", "cancelled", "lost", "doubled", "early")
        told = ", ".join(f"{name} {getattr(self, name)}" for name in counts)
        p50, p99 = (percentile(self.lateness, share) for share in (0.5, 0.99))
        return f"{told}, lateness p50/p99 {p50}/{p99} ms"


def judge(
    cast: Sequence[DemoSchedule], attempts: Mapping[LedgerRun, int], calls: Sequence[TargetCall]
) -> DemoVerdict:
    """`attempts` has every run of the ledger, and how often the ledger says it was tried."""
    story = {run: [call for call in calls if call.run_id == run.run_id] for run in attempts}
    ran = Counter(run.key for run, of_run in story.items() if _ran(run, of_run))
    cancelled = Counter(run.key for run in attempts if run.state is RunState.CANCELLED)
    unwanted = {scene.key for scene in cast if scene.ending is ExpectedEnd.CANCELLED}
    settled = ran + Counter({key: cancelled[key] for key in unwanted})
    strangers = len(calls) - sum(map(len, story.values()))
    surplus = sum(_surplus(of_run, attempts[run]) for run, of_run in story.items())
    return DemoVerdict(
        owed=expected_runs(cast),
        ran=ran.total(),
        cancelled=cancelled.total(),
        lost=sum(max(0, each.owed - settled[each.key]) for each in cast),
        doubled=strangers
        + surplus
        + sum(max(0, ran[each.key] - each.owed) for each in cast)
        + sum(ran[key] for key in unwanted),
        early=sum(_late_ms(run, call) < 0 for run, of_run in story.items() for call in of_run),
        lateness=sorted(_late_ms(run, of_run[0]) for run, of_run in story.items() if of_run),
    )


def percentile(ordered: Sequence[float], share: float) -> str:
    """The nearest rank; a dash of none."""
    return f"{ordered[ceil(share * len(ordered)) - 1]:.1f}" if ordered else "-"


def _ran(run: LedgerRun, calls: Sequence[TargetCall]) -> bool:
    """Both have to say so: the ledger, and the target that did it."""
    return run.state is RunState.SUCCEEDED and any(call.well for call in calls)


def _surplus(calls: Sequence[TargetCall], attempts: int) -> int:
    """Calls that no attempt stands for, or work done again after it was done."""
    return max(len(calls) - attempts, sum(call.well for call in calls) - 1, 0)


def _late_ms(run: LedgerRun, call: TargetCall) -> float:
    return (call.started_at - run.due_at).total_seconds() * 1000
