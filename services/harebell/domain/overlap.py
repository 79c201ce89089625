"""Overlap: which run of a schedule has the turn, and what becomes of the others. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from harebell.contract.policy import Overlap
from harebell.domain.run_states import Reason, RunState

MAX_WAITING: Final = 100  # runs of one schedule that wait for its turn; more are skipped

_IDLE: Final = frozenset({RunState.STAGED, RunState.RETRYING})


@dataclass(frozen=True, slots=True)
class OverlapSlot:
    """An open run that takes turns. `holds`: it was given the turn; `waits`: it was told to."""

    scheduled_for: datetime
    state: RunState
    is_running: bool = False
    is_waiting: bool = False

    @property
    def is_busy(self) -> bool:
        """It runs, or nobody knows whether it still does."""
        return self.state not in _IDLE

    @property
    def has_begun(self) -> bool:
        """It keeps the turn between its attempts, and when its executor gave it back."""
        return self.is_running or self.state is not RunState.STAGED

    @property
    def rank(self) -> tuple[bool, bool, datetime]:
        """Whose turn it is: the lowest one's. A total order, so that no two wait for each other."""
        return not self.is_busy, not self.has_begun, self.scheduled_for


@dataclass(frozen=True, slots=True)
class Proceed:
    """It has the turn. `replaced`: runs that will not be, in its favour."""

    replaced: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Whoever ends the run before it wakes it. `stopped`: runs that are asked to make way."""

    replaced: tuple[datetime, ...] = ()
    stopped: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class SkipRun:
    """It will not be."""

    reason: Reason


Decision: TypeAlias = Proceed | Wait | SkipRun


def decide(policy: Overlap, standing: Collection[OverlapSlot], candidate: OverlapSlot) -> Decision:
    """What becomes of a run whose instant has come, among those of its schedule that stand."""
    others = [turn for turn in standing if turn.scheduled_for != candidate.scheduled_for]
    is_first = all(candidate.rank < other.rank for other in others)
    match policy:
        case Overlap.ALLOW:
            return Proceed()
        case Overlap.SKIP:
            if is_first:
                return Proceed()
            return Wait() if candidate.has_begun else SkipRun(Reason.OVERLAP)
        case Overlap.QUEUE:
            if is_first:
                return Proceed()
            return Wait() if _has_room(others, candidate) else SkipRun(Reason.OVERLAP)
        case Overlap.REPLACE:
            return _replace(others, candidate)
        case _:
            assert_never(policy)


def _has_room(others: Sequence[OverlapSlot], candidate: OverlapSlot) -> bool:
    if candidate.has_begun or candidate.is_waiting:
        return True
    return sum(other.is_waiting for other in others) < MAX_WAITING


def _replace(others: Sequence[OverlapSlot], candidate: OverlapSlot) -> Decision:
    """The newest goes on. What is on hold stays where a person will look for it."""
    if any(other.scheduled_for > candidate.scheduled_for for other in others):
        return SkipRun(Reason.REPLACED)
    replaced = tuple(other.scheduled_for for other in others if not other.is_busy)
    running = tuple(o.scheduled_for for o in others if o.state is RunState.RUNNING)
    if any(other.is_busy for other in others):
        return Wait(replaced, running)
    return Proceed(replaced)


def decide_all(
    standing: Iterable[OverlapSlot], candidates: Sequence[tuple[Overlap, OverlapSlot]]
) -> dict[datetime, Decision]:
    """Several runs of one schedule that come together, one after the other.

    In the order of their instants; where the newest replaces the others, it goes first.
    """
    now = {turn.scheduled_for: turn for turn in standing}
    newest_first = any(policy is Overlap.REPLACE for policy, _ in candidates)
    ordered = sorted(candidates, key=lambda each: each[1].scheduled_for, reverse=newest_first)
    decided: dict[datetime, Decision] = {}
    for policy, candidate in ordered:
        decision = decide(policy, now.values(), candidate)
        decided[candidate.scheduled_for] = decision
        now = _after(now, candidate, decision)
    return decided


def _after(
    standing: Mapping[datetime, OverlapSlot], candidate: OverlapSlot, decision: Decision
) -> dict[datetime, OverlapSlot]:
    left = {moment: turn for moment, turn in standing.items() if moment != candidate.scheduled_for}
    match decision:
        case SkipRun():
            return left
        case Proceed(replaced):
            changed = OverlapSlot(candidate.scheduled_for, RunState.RUNNING, is_running=True)
        case Wait(replaced):
            changed = OverlapSlot(
                candidate.scheduled_for, candidate.state, candidate.is_running, is_waiting=True
            )
    left = {moment: turn for moment, turn in left.items() if moment not in replaced}
    return {**left, changed.scheduled_for: changed}


def next_waiting(policy: Overlap, standing: Collection[OverlapSlot]) -> datetime | None:
    """Who is to be woken, now that a run has ended or failed."""
    if not standing or any(turn.is_busy for turn in standing):
        return None
    if policy is Overlap.REPLACE:
        following_ = max(standing, key=lambda turn: turn.scheduled_for)
    else:
        following_ = min(standing, key=lambda turn: turn.rank)
    return following_.scheduled_for if following_.is_waiting else None
