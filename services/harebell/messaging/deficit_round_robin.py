"""Deficit round robin: the order of items that wait in several flows, counted in bytes. Pure."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
QUANTUM: Final = 16 * 1024  # bytes that a flow may take in each round
# Whether a flow, which has taken a number of bytes in this call, may take an item of another size.
Admits: TypeAlias = Callable[[str, int, int], bool]


@dataclass(slots=True)
class _Flow(Generic[T]):
    """The waiting items of a flow with their bytes, and the bytes that the flow may take."""

    items: deque[tuple[T, int]] = field(default_factory=deque)
    deficit: int = 0


@dataclass(slots=True)
class DeficitRoundRobin(Generic[T]):
    """The waiting items of several flows, such as the queues of tenants.

    Each round allows each flow the same number of bytes, so a flow with large or many items
    delays the others by a bounded number of bytes. The items of one flow keep their order.
    """

    _: KW_ONLY
    quantum: int = QUANTUM
    # The flows of the next rounds, in order. A flow that was just served is in `_served`, so a flow
    # that arrives before the next call of `take` comes first.
    _waiting: OrderedDict[str, _Flow[T]] = field(default_factory=OrderedDict)
    _served: OrderedDict[str, _Flow[T]] = field(default_factory=OrderedDict)

    def push(self, flow: str, item: T, size: int) -> None:
        """Add an item to the end of its flow."""
        found = self._served.get(flow) or self._waiting.setdefault(flow, _Flow())
        found.items.append((item, size))

    def take(self, *, limit: int, max_bytes: int, admits: Admits) -> list[T]:
        """Remove and return the next items: at least one if `admits` allows any first item.

        Return at most `limit` items, and at most `max_bytes` unless the first item is larger.
        `admits` receives the flow, its bytes that this call has taken, and the size of its item.
        """
        self._waiting.update(self._served)
        self._served.clear()
        taken: list[T] = []
        sizes: dict[str, int] = {}
        taken_bytes = 0
        blocked: OrderedDict[str, _Flow[T]] = OrderedDict()
        while self._waiting and len(taken) < limit and taken_bytes < max_bytes:
            name, flow = self._waiting.popitem(last=False)
            flow.deficit += self.quantum
            while flow.items and len(taken) < limit:
                item, size = flow.items[0]
                if size > flow.deficit:
                    break
                own_bytes = sizes.get(name, 0)
                if (taken and taken_bytes + size > max_bytes) or not admits(name, own_bytes, size):
                    # The flow keeps what this item needs, and gains nothing while it waits.
                    flow.deficit = size
                    blocked[name] = flow
                    break
                flow.items.popleft()
                flow.deficit -= size
                sizes[name] = own_bytes + size
                taken_bytes += size
                taken.append(item)
            if flow.items and name not in blocked:
                self._waiting[name] = flow
        self._requeue(blocked, sizes)
        return taken

    def _requeue(self, blocked: OrderedDict[str, _Flow[T]], sizes: dict[str, int]) -> None:
        """Put the flows that this call served behind those that it did not serve."""
        for name, flow in [*self._waiting.items(), *blocked.items()]:
            if name in sizes:
                self._waiting.pop(name, None)
                self._served[name] = flow
            else:
                self._waiting[name] = flow
