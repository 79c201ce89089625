"""TODO: describe this module."""

from collections import defaultdict
from collections.abc import Container
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, TypeAlias

from harebell.contract.ids import RunKey
from harebell.executor.model.claimed_run import ClaimedRun

GRAIN: Final = 0.001  # seconds: of the loop's timers
BATCHED_START_THRESHOLD: Final = (
    100  # claimed runs of a lane that wait: of more, one waking starts several
)
COARSEST: Final = 0.004  # seconds between wakings, of however many


def min_sleep(waiting: int) -> float:
    """Seconds that a lane sleeps at least when so many of its runs wait; 0 of few."""
    return min(waiting // BATCHED_START_THRESHOLD * GRAIN, COARSEST)


_Entry: TypeAlias = tuple[datetime, int, int, ClaimedRun]


class StartQueue:
    """Claimed runs until their instant; what is due first, and then most urgent, first.

    Runs of a target that has its share of the slots stand aside: none of the others is behind them.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._aside: defaultdict[str, list[_Entry]] = defaultdict(list)
        self._order = count()

    def __len__(self) -> int:
        """Without those that stand aside."""
        return len(self._heap)

    def push(self, run: ClaimedRun) -> None:
        heappush(self._heap, self._entry(run))

    def next_due(self) -> datetime | None:
        return self._heap[0][0] if self._heap else None

    def pop(self) -> ClaimedRun:
        return heappop(self._heap)[-1]

    def defer(self, run: ClaimedRun) -> None:
        heappush(self._aside[run.downstream], self._entry(run))

    def deferred_counts(self) -> dict[str, int]:
        """How many stand aside, by target."""
        return {downstream: len(entries) for downstream, entries in self._aside.items()}

    def resume(self, downstream: str) -> None:
        """The first of those of this target that stand aside, if there are any."""
        if entries := self._aside.get(downstream):
            heappush(self._heap, heappop(entries))
        else:
            self._aside.pop(downstream, None)

    def waiting(self) -> list[ClaimedRun]:
        return [entry[-1] for heap in (self._heap, *self._aside.values()) for entry in heap]

    def remove(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Those of them that wait here, which may start no more."""
        taken = [run for run in self.waiting() if run.key in keys]
        for heap in (self._heap, *self._aside.values()):
            heap[:] = [entry for entry in heap if entry[-1].key not in keys]
            heapify(heap)
        return taken

    def _entry(self, run: ClaimedRun) -> _Entry:
        return run.ticket.due_at, -run.ticket.priority, next(self._order), run
