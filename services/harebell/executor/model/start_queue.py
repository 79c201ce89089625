"""The start queue: claimed runs of one lane until their due time."""

from collections import defaultdict
from collections.abc import Container
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, TypeAlias

from harebell.contract.ids import RunKey
from harebell.executor.model.claimed_run import ClaimedRun

TIMER_RESOLUTION: Final = 0.001  # seconds, of the timers of the event loop
# Claimed runs of a lane that wait. At this number, one wake of the lane starts several runs.
BATCHED_START_THRESHOLD: Final = 100
MAX_MIN_SLEEP: Final = 0.004  # seconds, for any number of waiting runs


def min_sleep(waiting: int) -> float:
    """Return the shortest sleep of a lane with `waiting` runs, in seconds (0 below 100 runs)."""
    return min(waiting // BATCHED_START_THRESHOLD * TIMER_RESOLUTION, MAX_MIN_SLEEP)


_Entry: TypeAlias = tuple[datetime, int, int, ClaimedRun]


class StartQueue:
    """A queue of claimed runs, ordered by due time and then by priority.

    The runs of a target that uses its share of the slots are deferred to a queue of their own. They
    therefore delay no run of another target.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._deferred: defaultdict[str, list[_Entry]] = defaultdict(list)  # by downstream
        self._order = count()

    def __len__(self) -> int:
        """Return the number of runs that are not deferred."""
        return len(self._heap)

    def push(self, run: ClaimedRun) -> None:
        heappush(self._heap, self._entry(run))

    def next_due(self) -> datetime | None:
        return self._heap[0][0] if self._heap else None

    def pop(self) -> ClaimedRun:
        return heappop(self._heap)[-1]

    def defer(self, run: ClaimedRun) -> None:
        """Add the run to the deferred runs of its downstream."""
        heappush(self._deferred[run.downstream], self._entry(run))

    def deferred_counts(self) -> dict[str, int]:
        """Return the number of deferred runs by downstream."""
        return {downstream: len(entries) for downstream, entries in self._deferred.items()}

    def resume(self, downstream: str) -> None:
        """Move the first deferred run of the downstream back to the queue."""
        if entries := self._deferred.get(downstream):
            heappush(self._heap, heappop(entries))
        else:
            self._deferred.pop(downstream, None)

    def waiting(self) -> list[ClaimedRun]:
        """Return all runs, including the deferred runs."""
        return [entry[-1] for heap in (self._heap, *self._deferred.values()) for entry in heap]

    def remove(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Remove and return the runs with these keys, including deferred runs."""
        removed = [run for run in self.waiting() if run.key in keys]
        for heap in (self._heap, *self._deferred.values()):
            heap[:] = [entry for entry in heap if entry[-1].key not in keys]
            heapify(heap)
        return removed

    def _entry(self, run: ClaimedRun) -> _Entry:
        return run.ticket.due_at, -run.ticket.priority, next(self._order), run
