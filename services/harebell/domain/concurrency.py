"""The concurrency rule: which runs of a label execute, and which ones wait in its line. Pure.

In the line, due times decide. No run passes an earlier one, even if its own limit is larger, so
that no run with a small limit waits for ever.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from harebell.contract.ids import RunKey
from harebell.contract.policy import MAX_LABEL_LIMIT

MAX_LINE: Final = 100  # waiting runs of one label that a decision reads; the later ones wait
# A woken run keeps its slot for this time. Its ticket may wait for a pool without executors or for
# a breaker, and the other runs of the label must not wait for that.
RESERVATION: Final = timedelta(seconds=5)


class LabelRole(StrEnum):
    """The role of a run in its label."""

    RUNNING = "running"
    WAITING = "waiting"
    RESERVED = "reserved"  # woken, and its ticket is on its way


class Label(NamedTuple):
    """A concurrency label of a tenant."""

    tenant: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSlot:
    """A run of a label. `limit` is the limit of the version of the run."""

    key: RunKey
    due_at: datetime
    limit: int
    role: LabelRole = LabelRole.WAITING

    @property
    def is_occupied(self) -> bool:
        return self.role is not LabelRole.WAITING

    @property
    def rank(self) -> tuple[datetime, RunKey]:
        """The place in the line, which is a total order."""
        return self.due_at, self.key


def decide(slots: Collection[LabelSlot], candidate: LabelSlot) -> bool:
    """Return whether a due run executes now. Otherwise the run waits.

    With a reservation, a candidate stands in no line. If the line has `MAX_LINE` runs it is
    incomplete, so a candidate behind it waits.
    """
    others = [each for each in slots if each.key != candidate.key]
    ahead: list[LabelSlot] = []
    if not candidate.is_occupied:
        ahead = [each for each in _line(others) if each.rank < candidate.rank]
        if len(ahead) >= MAX_LINE:
            return False
    return _admitted(others, [*ahead, candidate])[-1:] == [candidate]


def decide_all(slots: Iterable[LabelSlot], candidates: Sequence[LabelSlot]) -> set[RunKey]:
    """Return the candidates of one label that execute now. The others wait.

    The candidates with a reservation come first, and then the order is that of the line.
    """
    current = {each.key: each for each in slots}
    admitted = set()
    for candidate in sorted(candidates, key=lambda each: (not each.is_occupied, each.rank)):
        role = LabelRole.WAITING
        if decide(current.values(), candidate):
            role = LabelRole.RUNNING
            admitted.add(candidate.key)
        current[candidate.key] = replace(candidate, role=role)
    return admitted


def next_waiting(slots: Collection[LabelSlot]) -> list[RunKey]:
    """Return the waiting runs that have a slot now, in the order of the line."""
    return [each.key for each in _admitted(slots, _line(slots))]


def _line(slots: Iterable[LabelSlot]) -> list[LabelSlot]:
    return sorted((each for each in slots if not each.is_occupied), key=lambda each: each.rank)


def _admitted(slots: Iterable[LabelSlot], line: Sequence[LabelSlot]) -> list[LabelSlot]:
    """Return the runs at the front of the line for which there are slots.

    A reserved slot keeps the limit of its run for all others, so that the run can start.
    """
    occupied = [each for each in slots if each.is_occupied]
    limit = min(
        (e.limit for e in occupied if e.role is LabelRole.RESERVED), default=MAX_LABEL_LIMIT
    )
    admitted: list[LabelSlot] = []
    for each in line:
        limit = min(limit, each.limit)
        if len(occupied) + len(admitted) >= limit:
            break
        admitted.append(each)
    return admitted
