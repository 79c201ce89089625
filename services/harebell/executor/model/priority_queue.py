"""A queue in the order of starts: the due items by start rank, then the others by due time."""

from collections.abc import Callable, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeAlias, TypeVar

from harebell.domain.run_states import start_rank

T = TypeVar("T")
_Entry: TypeAlias = tuple[datetime, int, T]  # the due time, the order of arrival, the item


class PriorityQueue(Generic[T]):
    """A queue of items, each with a due time and a priority.

    Each priority has a heap by due time. Within one priority, the order by start rank is the order
    by due time. Therefore one of the first items of these few heaps is always the next item, and no
    item moves when it becomes due.
    """

    def __init__(self) -> None:
        self._heaps: dict[int, list[_Entry[T]]] = {}  # by priority; only a single heap may be empty
        self._order = count()
        self._size = 0
        self._next_due: datetime | None = None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Yield all items in no particular order."""
        return (entry[-1] for heap in self._heaps.values() for entry in heap)

    def insert(self, item: T, due_at: datetime, priority: int) -> None:
        heaps = self._heaps
        heap = heaps.get(priority)
        if heap is None:
            if not self._size:
                heaps.clear()
            heap = heaps[priority] = []
        heappush(heap, (due_at, next(self._order), item))
        self._size += 1
        if self._next_due is None or due_at < self._next_due:
            self._next_due = due_at

    def pop(self, now: Callable[[], datetime]) -> T:
        """Remove and return the due item with the lowest rank, or else the earliest item.

        The queue calls `now` only if items of several priorities wait.
        """
        heaps = self._heaps
        if len(heaps) == 1:
            (heap,) = heaps.values()
            item = heappop(heap)[-1]
            self._next_due = heap[0][0] if heap else None
        else:
            priority = self._first_priority(now())
            heap = heaps[priority]
            item = heappop(heap)[-1]
            if not heap:
                del heaps[priority]
            self._next_due = min([each[0][0] for each in heaps.values()])
        self._size -= 1
        return item

    def next_due(self) -> datetime | None:
        """Return the earliest due time, also of the due items."""
        return self._next_due

    def first_rank(self, now: datetime) -> datetime | None:
        """Return the lowest rank of the due items, or None if no item is due."""
        ranks = (
            start_rank(heap[0][0], priority)
            for priority, heap in self._heaps.items()
            if heap and heap[0][0] <= now
        )
        return min(ranks, default=None)

    def next_change(self, now: datetime) -> datetime | None:
        """Return the next time at which `first_rank` can change without a new item or a pop."""
        due_times = (heap[0][0] for heap in self._heaps.values() if heap)
        return min((due_at for due_at in due_times if due_at > now), default=None)

    def remove(self, is_removed: Callable[[T], bool]) -> list[T]:
        """Remove and return the items for which the function returns true."""
        removed = [item for item in self if is_removed(item)]
        if removed:
            self._heaps = {
                priority: kept
                for priority, heap in self._heaps.items()
                if (kept := [entry for entry in heap if not is_removed(entry[-1])])
            }
            for heap in self._heaps.values():
                heapify(heap)
            self._size -= len(removed)
            self._next_due = min((heap[0][0] for heap in self._heaps.values()), default=None)
        return removed

    def _first_priority(self, now: datetime) -> int:
        """Return the priority of the next item. Of equal items, the highest priority is first."""
        first: int | None = None
        lowest = now
        for priority, heap in self._heaps.items():
            due_at = heap[0][0]
            if due_at > now:
                continue
            rank = start_rank(due_at, priority)
            if first is None or rank < lowest or (rank == lowest and priority > first):
                first, lowest = priority, rank
        if first is None:
            return min(self._heaps, key=lambda each: (self._heaps[each][0][0], -each))
        return first
