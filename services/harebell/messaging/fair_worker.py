"""The workers of a consumer of several queues, which serve the queues of tenants in turn."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from harebell.messaging.acknowledge import (
    Acknowledger,
    BatchHandler,
    Delivery,
    Handler,
    Outcome,
    acknowledge_with_retries,
    handle_with_retries,
)
from harebell.messaging.consumer import OrderedWorker
from harebell.messaging.deficit_round_robin import DeficitRoundRobin
from harebell.runtime.event_wait import wait_until_set

MESSAGE_SIZE: Final = 256  # bytes that each message counts besides its body
MAX_PARALLEL: Final = 4  # flows, or large batches, that are handled at the same time
MAX_SMALL_BATCH: Final = 16 * 1024  # bytes of a batch that is handled before the next batch
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

    A batch has up to `limit` deliveries and, unless one delivery is larger, `max_bytes`. During a
    batch of more than `MAX_SMALL_BATCH` bytes, the worker handles batches of the other queues.
    A batch that is not full begins at least `interval` seconds after the batch before it.
    """

    def __init__(
        self,
        handle: BatchHandler,
        acknowledger: Acknowledger,
        *,
        limit: int,
        max_bytes: int,
        windows: Windows | None = None,
        interval: float = 0,
    ) -> None:
        self._flows: DeficitRoundRobin[Delivery] = DeficitRoundRobin()
        self._max_bytes = max_bytes
        self._windows = windows or OpenWindows()
        self._interval = interval
        self._next_at = 0.0  # of the loop's clock
        self._waiting_bytes = 0
        self._busy: set[str] = set()  # the queues of the large batches
        self._large_batches: set[asyncio.Task[None]] = set()
        super().__init__(handle, acknowledger, limit=limit, gather_time=0)

    async def put(self, delivery: Delivery) -> None:
        size = size_of(delivery)
        self._flows.push(delivery.queue, delivery, size)
        self._waiting_bytes += size
        await super().put(delivery)
        self._windows.changed.set()

    async def _next_batch(self) -> list[Delivery]:
        # The queue of the base class has one entry for each delivery that waits in the flows.
        await self._queued.get()
        await self._wait_for_interval()
        while not (batch := self._take()):
            self._windows.changed.clear()
            await wait_until_set(self._windows.changed, MAX_WINDOW_WAIT)
        for _ in batch[1:]:
            self._queued.get_nowait()
        self._waiting_bytes -= sum(map(size_of, batch))
        return batch

    async def _wait_for_interval(self) -> None:
        now = asyncio.get_running_loop().time
        is_full = self._queued.qsize() + 1 >= self._limit or self._waiting_bytes >= self._max_bytes
        if not is_full and (wait := self._next_at - now()) > 0:
            await asyncio.sleep(wait)
        self._next_at = now() + self._interval

    async def drain(self, *, within: float) -> None:
        """Wait `within` seconds until the queue is empty, then cancel the rest."""
        await super().drain(within=within)
        for task in self._large_batches:
            task.cancel()
        await asyncio.gather(*self._large_batches, return_exceptions=True)

    async def _process(self, batch: list[Delivery]) -> None:
        """Handle a small batch, or start a large one beside those of the other queues."""
        if sum(map(size_of, batch)) <= MAX_SMALL_BATCH:
            await super()._process(batch)
            return
        queues = {each.queue for each in batch}
        task = asyncio.create_task(super()._process(batch))
        self._busy |= queues
        self._large_batches.add(task)
        task.add_done_callback(partial(self._end_large_batch, queues))
        if len(self._large_batches) >= MAX_PARALLEL:
            await asyncio.wait(self._large_batches, return_when=asyncio.FIRST_COMPLETED)

    def _end_large_batch(self, queues: set[str], task: asyncio.Task[None]) -> None:
        self._large_batches.discard(task)
        self._busy -= queues
        self._windows.changed.set()

    def _take(self) -> list[Delivery]:
        return self._flows.take(limit=self._limit, max_bytes=self._max_bytes, admits=self._admits)

    def _admits(self, queue: str, taken: int, size: int) -> bool:
        return queue not in self._busy and self._windows.admits(queue, taken, size)


def queue_of(delivery: Delivery) -> str:
    """Return the queue of a delivery, which is its flow by default."""
    return delivery.queue


class FairConcurrentWorker:
    """A worker that handles each delivery in its own task, and takes the flows in turn.

    A flow is a queue, or what `flow_of` returns, such as a tenant. At most `limit` deliveries are
    handled at the same time, and of each flow as many as `limit_of` returns; with 1, it keeps its
    order. Deliveries that wait are bounded by the prefetch of the queues.
    """

    def __init__(
        self,
        handle: Handler,
        acknowledger: Acknowledger,
        *,
        limit: int,
        limit_of: Callable[[str], int],
        flow_of: Callable[[Delivery], str] = queue_of,
    ) -> None:
        self._handle = handle
        self._acknowledger = acknowledger
        self._limit = limit
        self._limit_of = limit_of
        self._flow_of = flow_of
        self._waiting: OrderedDict[str, deque[Delivery]] = OrderedDict()  # in the order of turns
        self._active: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._tasks and not self._waiting

    async def put(self, delivery: Delivery) -> None:
        self._waiting.setdefault(self._flow_of(delivery), deque()).append(delivery)
        self._start()

    async def drain(self, *, within: float) -> None:
        """Wait `within` seconds for the tasks and cancel the rest without acknowledgement.

        The broker delivers the messages again whose handlers have not started.
        """
        self._waiting.clear()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _start(self) -> None:
        """Start the deliveries that have room. A flow that was served waits behind the others."""
        while len(self._tasks) < self._limit and (flow := self._next_flow()) is not None:
            deliveries = self._waiting.pop(flow)
            delivery = deliveries.popleft()
            if deliveries:
                self._waiting[flow] = deliveries
            self._active[flow] += 1
            task = asyncio.create_task(self._process(delivery))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, flow))

    def _next_flow(self) -> str | None:
        return next(
            (flow for flow in self._waiting if self._active[flow] < self._limit_of(flow)), None
        )

    def _end(self, flow: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._active[flow] -= 1
        if not self._active[flow]:
            del self._active[flow]  # a flow may be a tenant, and tenants have no bound
        self._start()

    async def _process(self, delivery: Delivery) -> None:
        outcome = await handle_with_retries(self._handle, delivery)
        await acknowledge_with_retries(self._acknowledger, [delivery], [outcome])


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
