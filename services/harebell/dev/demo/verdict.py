"""Whether the job was done: what was owed, against the target's own file and the ledger. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from harebell.dev.demo.evidence import Call, Run
from harebell.dev.demo.scenes import Ending, Scene, owed
from harebell.kernel.ledger import RunState


@dataclass(frozen=True, slots=True)
class Verdict:
    """`lost`: owed, and neither done nor cancelled. `doubled`: done, and not owed (any more)."""

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


def judge(cast: Sequence[Scene], attempts: Mapping[Run, int], calls: Sequence[Call]) -> Verdict:
    """`attempts` has every run of the ledger, and how often the ledger says it was tried."""
    by_run: dict[str, list[Call]] = {}
    for call in calls:
        by_run.setdefault(call.run_id, []).append(call)
    ran = Counter(run.key for run in attempts if _ran(run, by_run.get(run.run_id, [])))
    cancelled = Counter(run.key for run in attempts if run.state is RunState.CANCELLED)
    known = {run.run_id for run in attempts}
    wanted = {scene.key: 0 if scene.ending is Ending.CANCELLED else scene.owed for scene in cast}
    return Verdict(
        owed=owed(cast),
        ran=ran.total(),
        cancelled=cancelled.total(),
        lost=sum(max(0, each.owed - ran[each.key] - cancelled[each.key]) for each in cast),
        doubled=sum(max(0, ran[key] - count) for key, count in wanted.items())
        + sum(_surplus(by_run.get(run.run_id, []), count) for run, count in attempts.items())
        + sum(call.run_id not in known for call in calls),
        early=sum(
            _late_ms(run, call) < 0 for run in attempts for call in by_run.get(run.run_id, [])
        ),
        lateness=sorted(
            _late_ms(run, by_run[run.run_id][0]) for run in attempts if run.run_id in by_run
        ),
    )


def percentile(ordered: Sequence[float], share: float) -> str:
    """The nearest rank; a dash of none."""
    return f"{ordered[ceil(share * len(ordered)) - 1]:.1f}" if ordered else "-"


def _ran(run: Run, calls: Sequence[Call]) -> bool:
    """Both have to say so: the ledger, and the target that did it."""
    return run.state is RunState.SUCCEEDED and any(call.well for call in calls)


def _surplus(calls: Sequence[Call], attempts: int) -> int:
    """Calls that no attempt stands for, or work done again after it was done."""
    return max(len(calls) - attempts, sum(call.well for call in calls) - 1, 0)


def _late_ms(run: Run, call: Call) -> float:
    return (call.started_at - run.due_at).total_seconds() * 1000
