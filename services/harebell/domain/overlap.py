"""The overlap policy: which run of a schedule executes, and what the other runs do. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from harebell.contract.policy import Overlap
from harebell.domain.run_states import Reason, RunState

MAX_WAITING: Final = 100  # waiting runs of one schedule; further runs are skipped

_IDLE: Final = frozenset({RunState.STAGED, RunState.RETRYING})


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapSlot:
    """An open run of a schedule that restricts overlap.

    `is_running` is true for the run with the overlap slot, and `is_waiting` for a run that waits.
    """

    scheduled_for: datetime = field(kw_only=False)
    state: RunState = field(kw_only=False)
    is_running: bool = False
    is_waiting: bool = False

    @property
    def is_busy(self) -> bool:
        """True if the run executes, or if its outcome is unknown."""
        return self.state not in _IDLE

    @property
    def has_started(self) -> bool:
        """True if the run keeps the slot, also between attempts and after a return."""
        return self.is_running or self.state is not RunState.STAGED

    @property
    def rank(self) -> tuple[bool, bool, datetime]:
        """The order of the runs: the lowest rank has the slot.

        The order is total, so that no two runs wait for each other.
        """
        return not self.is_busy, not self.has_started, self.scheduled_for


@dataclass(frozen=True, slots=True)
class Proceed:
    """The decision to execute the run, and to cancel the `replaced` runs."""

    replaced: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """The decision to wait until the end of another run wakes this run.

    `replaced` runs are cancelled, and `stopped` runs receive a stop request.
    """

    replaced: tuple[datetime, ...] = ()
    stopped: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class SkipRun:
    """The decision to skip the run."""

    reason: Reason


Decision: TypeAlias = Proceed | Wait | SkipRun


def decide(policy: Overlap, open_runs: Collection[OverlapSlot], candidate: OverlapSlot) -> Decision:
    """Return the decision about a due run among the open runs of its schedule."""
    others = [each for each in open_runs if each.scheduled_for != candidate.scheduled_for]
    is_first = all(candidate.rank < other.rank for other in others)
    match policy:
        case Overlap.ALLOW:
            return Proceed()
        case Overlap.SKIP:
            if is_first:
                return Proceed()
            return Wait() if candidate.has_started else SkipRun(Reason.OVERLAP)
        case Overlap.QUEUE:
            if is_first:
                return Proceed()
            return Wait() if _can_wait(others, candidate) else SkipRun(Reason.OVERLAP)
        case Overlap.REPLACE:
            return _replace(others, candidate)
        case _:
            assert_never(policy)


def _can_wait(others: Sequence[OverlapSlot], candidate: OverlapSlot) -> bool:
    if candidate.has_started or candidate.is_waiting:
        return True
    return sum(other.is_waiting for other in others) < MAX_WAITING


def _replace(others: Sequence[OverlapSlot], candidate: OverlapSlot) -> Decision:
    """Prefer the newest run. An unresolved run stays, because a person must resolve it."""
    if any(other.scheduled_for > candidate.scheduled_for for other in others):
        return SkipRun(Reason.REPLACED)
    replaced = tuple(other.scheduled_for for other in others if not other.is_busy)
    running = tuple(other.scheduled_for for other in others if other.state is RunState.RUNNING)
    if any(other.is_busy for other in others):
        return Wait(replaced, running)
    return Proceed(replaced)


def decide_all(
    open_runs: Iterable[OverlapSlot], candidates: Sequence[tuple[Overlap, OverlapSlot]]
) -> dict[datetime, Decision]:
    """Decide several due runs of one schedule, in the order of their scheduled times.

    With the policy `replace`, the newest run comes first.
    """
    current = {each.scheduled_for: each for each in open_runs}
    newest_first = any(policy is Overlap.REPLACE for policy, _ in candidates)
    ordered = sorted(candidates, key=lambda each: each[1].scheduled_for, reverse=newest_first)
    decisions: dict[datetime, Decision] = {}
    for policy, candidate in ordered:
        decision = decide(policy, current.values(), candidate)
        decisions[candidate.scheduled_for] = decision
        current = _apply(current, candidate, decision)
    return decisions


def _apply(
    open_runs: Mapping[datetime, OverlapSlot], candidate: OverlapSlot, decision: Decision
) -> dict[datetime, OverlapSlot]:
    """Return the open runs after a decision."""
    others = {at: each for at, each in open_runs.items() if at != candidate.scheduled_for}
    match decision:
        case SkipRun():
            return others
        case Proceed(replaced):
            changed = OverlapSlot(candidate.scheduled_for, RunState.RUNNING, is_running=True)
        case Wait(replaced):
            changed = OverlapSlot(
                candidate.scheduled_for,
                candidate.state,
                is_running=candidate.is_running,
                is_waiting=True,
            )
    others = {at: each for at, each in others.items() if at not in replaced}
    return {**others, changed.scheduled_for: changed}


def next_waiting(policy: Overlap, open_runs: Collection[OverlapSlot]) -> datetime | None:
    """Return the run to wake after another run has ended or failed, or None."""
    if not open_runs or any(each.is_busy for each in open_runs):
        return None
    if policy is Overlap.REPLACE:
        candidate = max(open_runs, key=lambda each: each.scheduled_for)
    else:
        candidate = min(open_runs, key=lambda each: each.rank)
    return candidate.scheduled_for if candidate.is_waiting else None
