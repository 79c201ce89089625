"""Overlap: which run of a schedule has the turn, and what becomes of the others. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from harebell.contract.policy import Overlap
from harebell.kernel.ledger import Reason, RunState

MAX_WAITING: Final = 100  # runs of one schedule that wait for its turn; more are skipped

_IDLE: Final = frozenset({RunState.STAGED, RunState.RETRYING})


@dataclass(frozen=True, slots=True)
class Turn:
    """An open run that takes turns. `holds`: it was given the turn; `waits`: it was told to."""

    scheduled_for: datetime
    state: RunState
    holds: bool = False
    waits: bool = False

    @property
    def is_busy(self) -> bool:
        """It runs, or nobody knows whether it still does."""
        return self.state not in _IDLE

    @property
    def has_begun(self) -> bool:
        """It keeps the turn between its attempts, and when its executor gave it back."""
        return self.holds or self.state is not RunState.STAGED

    @property
    def rank(self) -> tuple[bool, bool, datetime]:
        """Whose turn it is: the lowest one's. A total order, so that no two wait for each other."""
        return not self.is_busy, not self.has_begun, self.scheduled_for


@dataclass(frozen=True, slots=True)
class Claim:
    """It has the turn. `replaced`: runs that will not be, in its favour."""

    replaced: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Whoever ends the run before it wakes it. `stopped`: runs that are asked to make way."""

    replaced: tuple[datetime, ...] = ()
    stopped: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """It will not be."""

    reason: Reason


Decision: TypeAlias = Claim | Wait | Skip


def decide(policy: Overlap, standing: Collection[Turn], candidate: Turn) -> Decision:
    """What becomes of a run whose instant has come, among those of its schedule that stand."""
    others = [turn for turn in standing if turn.scheduled_for != candidate.scheduled_for]
    is_first = all(candidate.rank < other.rank for other in others)
    match policy:
        case Overlap.ALLOW:
            return Claim()
        case Overlap.SKIP:
            if is_first:
                return Claim()
            return Wait() if candidate.has_begun else Skip(Reason.OVERLAP)
        case Overlap.QUEUE:
            if is_first:
                return Claim()
            return Wait() if _has_room(others, candidate) else Skip(Reason.OVERLAP)
        case Overlap.REPLACE:
            return _replace(others, candidate)
        case _:
            assert_never(policy)


def _has_room(others: Sequence[Turn], candidate: Turn) -> bool:
    if candidate.has_begun or candidate.waits:
        return True
    return sum(other.waits for other in others) < MAX_WAITING


def _replace(others: Sequence[Turn], candidate: Turn) -> Decision:
    """The newest goes on. What is on hold stays where a person will look for it."""
    if any(other.scheduled_for > candidate.scheduled_for for other in others):
        return Skip(Reason.REPLACED)
    replaced = tuple(other.scheduled_for for other in others if not other.is_busy)
    running = tuple(o.scheduled_for for o in others if o.state is RunState.RUNNING)
    if any(other.is_busy for other in others):
        return Wait(replaced, running)
    return Claim(replaced)


def decide_all(
    standing: Iterable[Turn], candidates: Sequence[tuple[Overlap, Turn]]
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
    standing: Mapping[datetime, Turn], candidate: Turn, decision: Decision
) -> dict[datetime, Turn]:
    left = {moment: turn for moment, turn in standing.items() if moment != candidate.scheduled_for}
    match decision:
        case Skip():
            return left
        case Claim(replaced):
            changed = Turn(candidate.scheduled_for, RunState.RUNNING, holds=True)
        case Wait(replaced):
            changed = Turn(candidate.scheduled_for, candidate.state, candidate.holds, waits=True)
    left = {moment: turn for moment, turn in left.items() if moment not in replaced}
    return {**left, changed.scheduled_for: changed}


def following(policy: Overlap, standing: Collection[Turn]) -> datetime | None:
    """Who is to be woken, now that a run has ended or failed."""
    if not standing or any(turn.is_busy for turn in standing):
        return None
    if policy is Overlap.REPLACE:
        following_ = max(standing, key=lambda turn: turn.scheduled_for)
    else:
        following_ = min(standing, key=lambda turn: turn.rank)
    return following_.scheduled_for if following_.waits else None
