"""The worker of a consumer of several queues, which serves the queues by deficit round robin."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from harebell.messaging.acknowledge import Acknowledger, BatchHandler, Delivery, Outcome
from harebell.messaging.consumer import OrderedWorker
from harebell.messaging.deficit_round_robin import DeficitRoundRobin

MESSAGE_SIZE: Final = 256  # bytes that each message counts besides its body
MAX_PARALLEL: Final = 4  # flows whose batches are handled at the same time
MAX_WORKERS: Final = 100  # ordered workers that remain when they have no delivery
MAX_WINDOW_WAIT: Final = 0.1  # seconds between two checks of the windows of the queues


class Windows(Protocol):
    """The windows that bound the bytes of each queue that a worker may process now."""

    changed: asyncio.Event

    def admits(self, queue: str, taken: int, size: int) -> bool: ...


class OpenWindows:
    """Windows without a bound."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def admits(self, queue: str, taken: int, size: int) -> bool:
        """Return that each queue may have any number of bytes."""
        del queue, taken, size
        return True


def size_of(delivery: Delivery) -> int:
    """Return the bytes that a delivery counts."""
    return len(delivery.body) + MESSAGE_SIZE


class FairWorker(OrderedWorker):
    """A worker that handles the deliveries of each queue in order, and the queues in turn.

    A batch has up to `limit` deliveries and, unless one delivery is larger, `max_bytes`.
    """

    def __init__(
        self,
        handle: BatchHandler,
        acknowledger: Acknowledger,
        *,
        limit: int,
        max_bytes: int,
        windows: Windows | None = None,
    ) -> None:
        self._flows: DeficitRoundRobin[Delivery] = DeficitRoundRobin()
        self._max_bytes = max_bytes
        self._windows = windows or OpenWindows()
        super().__init__(handle, acknowledger, limit=limit, gather_time=0)

    async def put(self, delivery: Delivery) -> None:
        self._flows.push(delivery.queue, delivery, size_of(delivery))
        await super().put(delivery)
        self._windows.changed.set()

    async def _next_batch(self) -> list[Delivery]:
        # The queue of the base class has one entry for each delivery that waits in the flows.
        await self._queued.get()
        while not (batch := self._take()):
            self._windows.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._windows.changed.wait(), MAX_WINDOW_WAIT)
        for _ in batch[1:]:
            self._queued.get_nowait()
        return batch

    def _take(self) -> list[Delivery]:
        return self._flows.take(
            limit=self._limit, max_bytes=self._max_bytes, admits=self._windows.admits
        )


class ParallelWorker:
    """A worker with one ordered worker for each flow, such as a tenant.

    At most `MAX_PARALLEL` flows are handled at the same time, in the order of their batches, so a
    flow with large batches delays the others by at most one batch.
    """

    def __init__(
        self,
        make_worker: Callable[[BatchHandler], OrderedWorker],
        handle: BatchHandler,
        flow_of: Callable[[Delivery], str],
    ) -> None:
        self._handle = handle
        self._make_worker = partial(make_worker, self._handle_in_turn)
        self._flow_of = flow_of
        self._places = asyncio.Semaphore(MAX_PARALLEL)
        self._workers: dict[str, OrderedWorker] = {}

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in self._workers.values())

    async def put(self, delivery: Delivery) -> None:
        flow = self._flow_of(delivery)
        if flow not in self._workers:
            await self._remove_idle()
            self._workers[flow] = self._make_worker()
        await self._workers[flow].put(delivery)

    async def drain(self, *, within: float) -> None:
        """Wait `within` seconds until the queues are empty, then cancel the rest."""
        await asyncio.gather(*(each.drain(within=within) for each in self._workers.values()))

    async def _remove_idle(self) -> None:
        """Remove the workers without a delivery when there are `MAX_WORKERS`."""
        if len(self._workers) >= MAX_WORKERS:
            idle = [flow for flow, worker in self._workers.items() if worker.is_idle]
            await asyncio.gather(*(self._workers.pop(flow).drain(within=0) for flow in idle))

    async def _handle_in_turn(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        async with self._places:
            return await self._handle(deliveries)
