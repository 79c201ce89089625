"""Consumers that reconnect after each lost session, and the workers that order their deliveries."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueue

from harebell.client.connection import BROKER_REPLY_TIMEOUT, close, translate_amqp_errors
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
from harebell.runtime.retries import MAX_BACKOFF, backoff_delay

DRAIN_TIMEOUT: Final = 10.0  # seconds for the handlers to finish when a service stops
IDLE_CHECK_INTERVAL: Final = 5.0  # seconds between two counts of ready messages

log = structlog.get_logger()
pamqp_patch.install()


class ConcurrentWorker:
    """A worker that handles each delivery in its own task. The prefetch bounds the tasks."""

    def __init__(self, handle: Handler, acknowledger: Acknowledger) -> None:
        self._handle = handle
        self._acknowledger = acknowledger
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def put(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._process(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _process(self, delivery: Delivery) -> None:
        outcome = await handle_with_retries(self._handle, delivery)
        await acknowledge_with_retries(self._acknowledger, delivery, outcome)

    async def drain(self, *, within: float) -> None:
        """Wait `within` seconds for the tasks and cancel the rest without acknowledgement."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class OrderedWorker:
    """A worker that handles deliveries in order, in batches of up to `limit`.

    The worker waits `gather_time` seconds for further deliveries after the first one of a batch.
    """

    def __init__(
        self, handle: BatchHandler, acknowledger: Acknowledger, *, limit: int, gather_time: float
    ) -> None:
        self._handle = handle
        self._acknowledger = acknowledger
        self._limit = limit
        self._gather_time = gather_time
        self._queued: asyncio.Queue[Delivery] = asyncio.Queue()  # bounded by the prefetch
        self._unacknowledged = 0
        self._task = asyncio.create_task(self._run())

    @property
    def is_idle(self) -> bool:
        return not self._unacknowledged

    async def put(self, delivery: Delivery) -> None:
        self._unacknowledged += 1
        self._queued.put_nowait(delivery)

    async def _run(self) -> None:
        while True:
            batch = await self._next_batch()
            for delivery, outcome in zip(batch, await self._outcomes(batch), strict=True):
                await acknowledge_with_retries(self._acknowledger, delivery, outcome)
            self._unacknowledged -= len(batch)
            for _ in batch:
                self._queued.task_done()

    async def _next_batch(self) -> list[Delivery]:
        batch = [await self._queued.get()]
        if self._queued.empty() and self._gather_time:
            await asyncio.sleep(self._gather_time)
        while len(batch) < self._limit and not self._queued.empty():
            batch.append(self._queued.get_nowait())
        return batch

    async def _outcomes(self, batch: list[Delivery]) -> Sequence[Outcome]:
        """Handle the batch, and after a failure each delivery alone.

        One message that fails in every try then delays no other message of its batch.
        """
        if len(batch) > 1:
            try:
                return await self._handle(batch)
            except Exception as error:  # noqa: BLE001  # `handle_with_retries` judges the error
                log.info("batch split", queue=batch[0].queue, size=len(batch), error=str(error))

        async def handle_one(delivery: Delivery) -> Outcome:
            return (await self._handle([delivery]))[0]

        return [await handle_with_retries(handle_one, delivery) for delivery in batch]

    async def drain(self, *, within: float) -> None:
        """Wait `within` seconds until the queue is empty, then cancel the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._queued.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


Worker: TypeAlias = ConcurrentWorker | OrderedWorker
Connect: TypeAlias = Callable[[], Awaitable[AbstractConnection]]


class Consumer:
    """A consumer of one queue that opens a new session after each lost one.

    With `needs_idle_check`, an idle consumer counts the ready messages of its queue.
    The consumer opens a new session if the broker does not deliver these messages.
    A queue with a single active consumer must disable the check, because its other consumers
    receive no message.
    """

    def __init__(
        self,
        queue: str,
        connect: Connect,
        make_worker: Callable[[], Worker],
        *,
        prefetch: int,
        needs_idle_check: bool = True,
    ) -> None:
        self._queue = queue
        self._connect = connect
        self._make_worker = make_worker
        self._prefetch = prefetch
        self._needs_idle_check = needs_idle_check
        self._delivered = 0
        self.is_consuming = False

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set and the handlers of the delivered messages have finished."""
        tries = 0
        while not stop.is_set():
            started_at = monotonic()
            try:
                with translate_amqp_errors("The session has ended"):
                    await self._consume_session(stop)
            except Transient as error:
                log.warning("consumer lost", queue=self._queue, error=error.reason)
                # A session that ends soon after its start counts as a failed try. Otherwise the
                # consumer would reconnect without a pause.
                tries = 1 if monotonic() - started_at > MAX_BACKOFF else tries + 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), backoff_delay(tries))

    async def _consume_session(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set. Raise `BrokerUnavailable` if the session ends earlier."""
        connection = await self._connect()
        worker = self._make_worker()
        lost = asyncio.Event()
        try:
            connection.close_callbacks.add(lambda *_: lost.set())
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                queue, tag = await self._start_consuming(connection, worker, lost)
            self.is_consuming = True
            await _wait_for_first(
                stop.wait(), lost.wait(), self._wait_until_undelivered(queue, worker)
            )
            if not stop.is_set():
                raise BrokerUnavailable("The session has ended.")
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                await queue.cancel(tag)
        finally:
            self.is_consuming = False
            # The broker delivers the messages of a lost session again, so no handler must finish.
            await worker.drain(within=DRAIN_TIMEOUT if stop.is_set() else 0)
            await close(connection)

    async def _start_consuming(
        self, connection: AbstractConnection, worker: Worker, lost: asyncio.Event
    ) -> tuple[AbstractQueue, str]:
        """Return the queue and the tag of the consumer. Set `lost` when the broker ends both."""
        channel = await connection.channel(publisher_confirms=False)
        channel.close_callbacks.add(lambda *_: lost.set())
        underlay = await channel.get_underlay_channel()
        # The deletion of a queue ends its consumers but not the channel. Without this callback the
        # consumer would wait forever.
        underlay.on_consumer_cancel_callbacks.add(lambda _: lost.set())
        await channel.set_qos(prefetch_count=self._prefetch)
        queue = await channel.get_queue(self._queue, ensure=True)

        async def deliver(message: AbstractIncomingMessage) -> None:
            self._delivered += 1
            await worker.put(Delivery(message, self._queue))

        return queue, await queue.consume(deliver)

    async def _wait_until_undelivered(self, queue: AbstractQueue, worker: Worker) -> None:
        """Return when two checks in a row find ready messages and no delivery between them.

        A queue that is declared again within milliseconds of its deletion keeps its consumers and
        delivers nothing to them.
        A queue that delivered messages through a member which had just started does the same.
        """
        delivered_before: int | None = None  # None: the last check found no ready message
        while True:
            await asyncio.sleep(IDLE_CHECK_INTERVAL)
            is_ready = (
                self._needs_idle_check and worker.is_idle and await self._has_ready_messages(queue)
            )
            if is_ready and delivered_before == self._delivered:
                log.warning("ready messages not delivered", queue=self._queue)
                return
            delivered_before = self._delivered if is_ready and worker.is_idle else None

    async def _has_ready_messages(self, queue: AbstractQueue) -> bool:
        async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
            declared = await queue.channel.declare_queue(self._queue, passive=True)
        return bool(declared.declaration_result.message_count)


async def _wait_for_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return or raise with the first coroutine that ends, and cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
