"""The start queue: claimed runs of one lane until their start."""

from bisect import insort
from collections.abc import Container
from datetime import datetime
from itertools import chain, count
from typing import Final, TypeAlias

from harebell.contract.ids import RunKey
from harebell.domain.start_rank import start_rank
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.priority_queue import PriorityQueue

TIMER_RESOLUTION: Final = 0.001  # seconds, of the timers of the event loop
# Claimed runs of a lane that wait. At this number, one wake of the lane starts several runs.
BATCHED_START_THRESHOLD: Final = 100
MAX_MIN_SLEEP: Final = 0.004  # seconds, for any number of waiting runs


def min_sleep(waiting: int) -> float:
    """Return the shortest sleep of a lane with `waiting` runs, in seconds (0 below 100 runs)."""
    return min(waiting // BATCHED_START_THRESHOLD * TIMER_RESOLUTION, MAX_MIN_SLEEP)


# The start rank, the order of deferral, the run.
_Deferred: TypeAlias = tuple[datetime, int, ClaimedRun]


class StartQueue(PriorityQueue[ClaimedRun]):
    """A queue of claimed runs, in the order of starts. Its length excludes the deferred runs.

    The runs of a target that uses its share of the slots are deferred to a list of their own. They
    therefore delay no run of another target. All of them are due, so their order is the start rank.
    """

    def __init__(self) -> None:
        super().__init__()
        self._deferred: dict[str, list[_Deferred]] = {}  # sorted, by downstream
        self._deferrals = count()

    def push(self, run: ClaimedRun) -> None:
        ticket = run.ticket
        self.insert(run, ticket.due_at, ticket.priority)

    def defer(self, run: ClaimedRun) -> None:
        """Add the due run to the deferred runs of its downstream."""
        rank = start_rank(run.ticket.due_at, run.ticket.priority)
        insort(self._deferred.setdefault(run.downstream, []), (rank, next(self._deferrals), run))

    def deferred_counts(self) -> dict[str, int]:
        """Return the number of deferred runs by downstream."""
        return {downstream: len(entries) for downstream, entries in self._deferred.items()}

    def deferred_rank(self, downstream: str, position: int) -> datetime:
        """Return the start rank of the deferred run at this position, counted from 0."""
        return self._deferred[downstream][position][0]

    def resume(self, downstream: str) -> None:
        """Move the first deferred run of the downstream back to the queue."""
        if entries := self._deferred.get(downstream):
            self.push(entries.pop(0)[-1])
        else:
            self._deferred.pop(downstream, None)

    def waiting(self) -> list[ClaimedRun]:
        """Return all runs, including the deferred runs."""
        deferred = chain.from_iterable(self._deferred.values())
        return [*self, *(run for _, _, run in deferred)]

    def remove_keys(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Remove and return the runs with these keys, including deferred runs."""
        removed = self.remove(lambda run: run.key in keys)
        for entries in self._deferred.values():
            removed += [run for _, _, run in entries if run.key in keys]
            entries[:] = [entry for entry in entries if entry[-1].key not in keys]
        return removed
