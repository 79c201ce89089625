"""Consumers that reconnect after each lost session, and the workers that order their deliveries."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.abc import AbstractChannel as AbstractUnderlayChannel
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import ChannelClosed

from harebell.connection.amqp import (
    BROKER_REPLY_TIMEOUT,
    close,
    open_probe_channel,
    translate_amqp_errors,
)
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
from harebell.messaging.foreign_messages import refuse_foreign
from harebell.messaging.received_message import ReceivedMessage, UnacknowledgedTags
from harebell.runtime.clock import monotonic
from harebell.runtime.event_wait import wait_until_set
from harebell.runtime.retries import MAX_BACKOFF, backoff_delay

DRAIN_TIMEOUT: Final = 10.0  # seconds for the handlers to finish when a service stops
IDLE_CHECK_INTERVAL: Final = 5.0  # seconds between two counts of ready messages

MIN_PROBE_INTERVAL: Final = 2.0  # seconds between two checks of an optional queue
MAX_PROBE_INTERVAL: Final = 30.0  # seconds, because the broker logs each check of a missing queue
MAX_OPTIONAL_QUEUES: Final = 1_000  # of one consumer; further ones wait for a place

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
        await acknowledge_with_retries(self._acknowledger, [delivery], [outcome])

    async def drain(self, *, within: float) -> None:
        """Wait `within` seconds for the tasks and cancel the rest without acknowledgement."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class OrderedWorker:
    """A worker that handles deliveries in order, in batches of up to `limit`.

    The worker waits `gather_time` seconds for further deliveries while a batch is not full.
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
            await self._process(await self._next_batch())

    async def _process(self, batch: list[Delivery]) -> None:
        outcomes = await self._outcomes(batch)
        await acknowledge_with_retries(self._acknowledger, batch, outcomes)
        self._unacknowledged -= len(batch)
        for _ in batch:
            self._queued.task_done()

    async def _next_batch(self) -> list[Delivery]:
        batch = [await self._queued.get()]
        if self._queued.qsize() + 1 < self._limit and self._gather_time:
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


class Worker(Protocol):
    """The handler of the deliveries of one session."""

    @property
    def is_idle(self) -> bool: ...

    async def put(self, delivery: Delivery) -> None: ...

    async def drain(self, *, within: float) -> None: ...


Connect: TypeAlias = Callable[[], Awaitable[AbstractConnection]]
Accepts: TypeAlias = Callable[[ReceivedMessage], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalQueues:
    """Further queues of a consumer, which exist on some brokers only and may appear at any time.

    Each is consumed on a channel of its own. `names` returns the queues that may exist now.
    """

    names: Callable[[], Collection[str]]
    prefetch: int  # of each queue


@dataclass(slots=True)
class _Probe:
    """The next check of an optional queue that did not exist."""

    at: float = 0.0
    interval: float = MIN_PROBE_INTERVAL


class Consumer:
    """A consumer of one queue, if any, that opens a new session after each lost one.

    With `needs_idle_check`, it counts the ready messages of its queue while it is idle, and opens a
    new session if the broker does not deliver them.
    Disable that for a queue with a single active consumer, whose other consumers receive nothing.
    With `optional` queues, the session also ends with the loss of one of them.
    What `accepts` refuses is rejected, and the broker dead-letters it.
    """

    def __init__(
        self,
        queue: str | None,
        connect: Connect,
        make_worker: Callable[[], Worker],
        *,
        prefetch: int = 0,
        needs_idle_check: bool = True,
        optional: OptionalQueues | None = None,
        accepts: Accepts = lambda _: True,
    ) -> None:
        self._accepts = accepts
        self._optional = optional
        self._queue = queue
        self._connect = connect
        self._make_worker = make_worker
        self._prefetch = prefetch
        self._needs_idle_check = needs_idle_check and queue is not None
        self._delivered = 0
        self._underlays: dict[str, AbstractUnderlayChannel] = {}  # by consumer tag, of the session
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
                await wait_until_set(stop, backoff_delay(tries))

    async def _consume_session(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set. Raise `BrokerUnavailable` if the session ends earlier."""
        self._underlays = {}
        connection = await self._connect()
        worker = self._make_worker()
        lost = asyncio.Event()
        try:
            connection.close_callbacks.add(lambda *_: lost.set())
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                channel = await self._open_channel(connection, lost)
                if self._queue is not None:
                    await self._start_consuming(
                        channel, self._queue, prefetch=self._prefetch, worker=worker
                    )
            self.is_consuming = True
            waits = [stop.wait(), lost.wait(), self._wait_until_undelivered(channel, worker)]
            if self._optional is not None:
                waits.append(
                    self._consume_optional(self._optional, connection, worker=worker, lost=lost)
                )
            await _wait_for_first(*waits)
            if not stop.is_set():
                raise BrokerUnavailable("The session has ended.")
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                for tag, underlay in self._underlays.items():
                    await underlay.basic_cancel(tag)
        finally:
            self.is_consuming = False
            # The broker delivers the messages of a lost session again, so no handler must finish.
            await worker.drain(within=DRAIN_TIMEOUT if stop.is_set() else 0)
            await close(connection)

    async def _open_channel(
        self, connection: AbstractConnection, lost: asyncio.Event
    ) -> AbstractChannel:
        """Return a channel for consumers. Set `lost` when the broker ends it or a consumer."""
        channel = await connection.channel(publisher_confirms=False)
        channel.close_callbacks.add(lambda *_: lost.set())
        underlay = await channel.get_underlay_channel()
        # The deletion of a queue ends its consumers but not the channel. Without this callback the
        # consumer would wait forever.
        underlay.on_consumer_cancel_callbacks.add(lambda _: lost.set())
        return channel

    async def _start_consuming(
        self, channel: AbstractChannel, name: str, *, prefetch: int, worker: Worker
    ) -> None:
        await channel.set_qos(prefetch_count=prefetch)  # of the next consumer of the channel
        await channel.get_queue(name, ensure=True)
        underlay = await channel.get_underlay_channel()
        unacknowledged = UnacknowledgedTags(underlay)

        # The message objects of aio-pika would need a third of the CPU time of intake.
        async def deliver(delivered: DeliveredMessage) -> None:
            self._delivered += 1
            message = ReceivedMessage.of(delivered, unacknowledged)
            unacknowledged.add(message.tag)
            if not self._accepts(message):
                refuse_foreign(name, message)
                await unacknowledged.reject(message.tag)
                return
            await worker.put(Delivery(message, name))

        consumed = await underlay.basic_consume(name, deliver)
        self._underlays[consumed.consumer_tag or ""] = underlay

    async def _consume_optional(
        self,
        optional: OptionalQueues,
        connection: AbstractConnection,
        *,
        worker: Worker,
        lost: asyncio.Event,
    ) -> None:
        """Consume each optional queue soon after its creation, until the task is cancelled.

        Each has a channel, because the broker delivers the messages of one channel in order, and
        may need a second for a single message with many nested headers.
        """
        probes: dict[str, _Probe] = {}
        consumed: set[str] = set()
        while True:
            for name in sorted(set(optional.names()) - consumed)[
                : MAX_OPTIONAL_QUEUES - len(consumed)
            ]:
                probe = probes.setdefault(name, _Probe())
                if monotonic() < probe.at:
                    continue
                if await self._has_queue(connection, name):
                    async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                        channel = await self._open_channel(connection, lost)
                        await self._start_consuming(
                            channel, name, prefetch=optional.prefetch, worker=worker
                        )
                    consumed.add(name)
                    log.info("optional queue consumed", queue=name)
                    continue
                probe.at = monotonic() + probe.interval
                probe.interval = min(2 * probe.interval, MAX_PROBE_INTERVAL)
            await asyncio.sleep(MIN_PROBE_INTERVAL)

    async def _has_queue(self, connection: AbstractConnection, name: str) -> bool:
        """Return whether the queue exists. A check of a missing queue ends its channel."""
        async with asyncio.timeout(BROKER_REPLY_TIMEOUT), open_probe_channel(connection) as channel:
            try:
                await channel.declare_queue(name, passive=True)
            except ChannelClosed:
                return False
            return True

    async def _wait_until_undelivered(self, channel: AbstractChannel, worker: Worker) -> None:
        """Return when two checks in a row find ready messages and no delivery between them.

        A queue that is declared again within milliseconds of its deletion keeps its consumers and
        delivers nothing to them.
        A queue that delivered messages through a member which had just started does the same.
        """
        delivered_before: int | None = None  # None: the last check found no ready message
        while True:
            await asyncio.sleep(IDLE_CHECK_INTERVAL)
            is_ready = (
                self._needs_idle_check
                and worker.is_idle
                and await self._has_ready_messages(channel)
            )
            if is_ready and delivered_before == self._delivered:
                log.warning("ready messages not delivered", queue=self._queue)
                return
            delivered_before = self._delivered if is_ready and worker.is_idle else None

    async def _has_ready_messages(self, channel: AbstractChannel) -> bool:
        async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
            declared = await channel.declare_queue(self._queue, passive=True)
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
