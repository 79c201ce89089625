"""Sessions of a consumer: one that is lost is followed by another, and how its work is ordered."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueue

from harebell.client.connection import ANSWER_TIMEOUT, close, translate_amqp_errors
from harebell.contract.errors import BrokerUnavailable, Transient
from harebell.messaging import pamqp_patch
from harebell.messaging.acknowledge import (
    Acknowledger,
    BatchHandler,
    Delivery,
    Handler,
    Outcome,
    acknowledge_with_retries,
    handle_with_retries,
)
from harebell.runtime.clock import monotonic
from harebell.runtime.retries import LONGEST_PAUSE, backoff_delay

DRAIN: Final = 10.0  # seconds that handlers get to end when a service stops
IDLE_CHECK_INTERVAL: Final = (
    5.0  # seconds between looks at what waits while a consumer is shown nothing
)

log = structlog.get_logger()
pamqp_patch.install()


class ConcurrentWorker:
    """Each delivery handled by a task of its own; prefetch bounds them."""

    def __init__(self, handle: Handler, settler: Acknowledger) -> None:
        self._handle = handle
        self._settler = settler
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def put(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._one(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, delivery: Delivery) -> None:
        outcome = await handle_with_retries(self._handle, delivery)
        await acknowledge_with_retries(self._settler, delivery, outcome)

    async def end(self, *, grace: float) -> None:
        """What still runs after the grace is cancelled: its message was not acknowledged."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class OrderedWorker:
    """Deliveries handled in order, as many as are at hand at a time, up to `limit`."""

    def __init__(
        self, handle: BatchHandler, settler: Acknowledger, *, limit: int, linger: float
    ) -> None:
        self._handle = handle
        self._settler = settler
        self._limit = limit
        self._linger = linger
        self._waiting: asyncio.Queue[Delivery] = asyncio.Queue()  # bounded by prefetch
        self._unsettled = 0
        self._task = asyncio.create_task(self._work())

    @property
    def is_idle(self) -> bool:
        return not self._unsettled

    async def put(self, delivery: Delivery) -> None:
        self._unsettled += 1
        self._waiting.put_nowait(delivery)

    async def _work(self) -> None:
        while True:
            batch = await self._batch()
            for delivery, outcome in zip(batch, await self._outcomes(batch), strict=True):
                await acknowledge_with_retries(self._settler, delivery, outcome)
            self._unsettled -= len(batch)
            for _ in batch:
                self._waiting.task_done()

    async def _batch(self) -> list[Delivery]:
        batch = [await self._waiting.get()]
        if self._waiting.empty() and self._linger:
            await asyncio.sleep(self._linger)
        while len(batch) < self._limit and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        return batch

    async def _outcomes(self, batch: list[Delivery]) -> Sequence[Outcome]:
        """A batch that fails is done again one message at a time: one poison spoils no other."""
        if len(batch) > 1:
            try:
                return await self._handle(batch)
            except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
                log.info("batch split", queue=batch[0].queue, size=len(batch), error=str(error))

        async def alone(delivery: Delivery) -> Outcome:
            return (await self._handle([delivery]))[0]

        return [await handle_with_retries(alone, delivery) for delivery in batch]

    async def end(self, *, grace: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._waiting.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


Worker: TypeAlias = ConcurrentWorker | OrderedWorker
Connect: TypeAlias = Callable[[], Awaitable[AbstractConnection]]


class Consumer:
    """Keeps one queue consumed: a session that ends is followed by another.

    `looks`: while idle it asks whether messages wait that it is not shown. Where only one consumer
    is active, the others are shown none by design, and are not to look.
    """

    def __init__(
        self,
        queue: str,
        connect: Connect,
        worker: Callable[[], Worker],
        *,
        prefetch: int,
        looks: bool = True,
    ) -> None:
        self._queue = queue
        self._connect = connect
        self._worker = worker
        self._prefetch = prefetch
        self._looks = looks
        self._delivered = 0
        self.is_consuming = False

    async def run(self, stop: asyncio.Event) -> None:
        """Returns after `stop`, when what was delivered has been handled."""
        tries = 0
        while not stop.is_set():
            began = monotonic()
            try:
                with translate_amqp_errors("the session has ended"):
                    await self._session(stop)
            except Transient as error:
                log.warning("consumer lost", queue=self._queue, error=error.reason)
                # one that opens and is lost at once must not be tried again at once
                tries = 1 if monotonic() - began > LONGEST_PAUSE else tries + 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), backoff_delay(tries))

    async def _session(self, stop: asyncio.Event) -> None:
        """Returns after `stop`; raises when it is lost before."""
        connection = await self._connect()
        worker = self._worker()
        over = asyncio.Event()
        try:
            connection.close_callbacks.add(lambda *_: over.set())
            async with asyncio.timeout(ANSWER_TIMEOUT):
                queue, tag = await self._consume(connection, worker, over)
            self.is_consuming = True
            await _first(stop.wait(), over.wait(), self._until_overlooked(queue, worker))
            if not stop.is_set():
                raise BrokerUnavailable("the session has ended")
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await queue.cancel(tag)
        finally:
            self.is_consuming = False
            # a lost session's messages come again: nothing to wait for
            await worker.end(grace=DRAIN if stop.is_set() else 0)
            await close(connection)

    async def _consume(
        self, connection: AbstractConnection, worker: Worker, over: asyncio.Event
    ) -> tuple[AbstractQueue, str]:
        """The queue and the consumer's tag. `over` is set when the broker ends it."""
        channel = await connection.channel(publisher_confirms=False)
        channel.close_callbacks.add(lambda *_: over.set())
        underlay = await channel.get_underlay_channel()
        # a deleted queue ends its consumers, not the channel: without this we wait for ever
        underlay.on_consumer_cancel_callbacks.add(lambda _: over.set())
        await channel.set_qos(prefetch_count=self._prefetch)
        queue = await channel.get_queue(self._queue, ensure=True)

        async def deliver(message: AbstractIncomingMessage) -> None:
            self._delivered += 1
            await worker.put(Delivery(message, self._queue))

        return queue, await queue.consume(deliver)

    async def _until_overlooked(self, queue: AbstractQueue, worker: Worker) -> None:
        """Returns when messages wait and none comes, twice in a row, though there is room for all.

        A queue that was made anew in the moment of its deletion shows its old consumers nothing;
        neither does one that has sent messages by way of a member which had just been started.
        """
        seen: int | None = None  # what had been delivered when messages waited
        while True:
            await asyncio.sleep(IDLE_CHECK_INTERVAL)
            waits = self._looks and worker.is_idle and await self._waits(queue)
            if waits and seen == self._delivered:
                log.warning("consumer overlooked", queue=self._queue)
                return
            seen = self._delivered if waits and worker.is_idle else None

    async def _waits(self, queue: AbstractQueue) -> bool:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            declared = await queue.channel.declare_queue(self._queue, passive=True)
        return bool(declared.declaration_result.message_count)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when one of them does, or raises what it raises; the others are cancelled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
