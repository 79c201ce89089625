"""The broker client of a simulated process, with the interface of the client library."""

from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

import aio_pika
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic, Queue
from pamqp.header import ContentHeader
from tests.simulation.bus import FakeBroker, Message, PendingDelivery, Subscription
from tests.simulation.process import Process

from harebell.contract.amqp_names import Lane
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.received_message import ReceivedMessage, UnacknowledgedTags
from harebell.messaging.received_properties import ReceivedProperties
from harebell.messaging.topology.bus import INTAKE, executor_control_queue, work_queue


class Callbacks(list[Callable[..., None]]):
    """A list in place of the sets of the library, whose order is random."""

    def add(self, callback: Callable[..., None]) -> None:
        self.append(callback)


class FakeConnection:
    """The connection of a process, which publishes messages and opens sessions."""

    def __init__(self, broker: FakeBroker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._sessions: list[FakeSession] = []

    @property
    def is_open(self) -> bool:
        return True

    async def open(self) -> None:
        """Return at once, because each use opens the connection."""

    async def publish(
        self, exchange: str, routing_key: str, message: aio_pika.Message, **_: float
    ) -> None:
        sent = Message(
            exchange=exchange,
            routing_key=routing_key,
            body=message.body,
            message_id=message.message_id,
            type=message.type,
            reply_to=message.reply_to,
            correlation_id=message.correlation_id,
        )

        async def effect() -> bool:
            return self._broker.publish(sent)

        if not await self._process.call_broker(f"publish to {exchange}/{routing_key}", effect):
            raise Unroutable(f"A queue must be bound to {exchange} for {routing_key!r}.")

    async def connect(self, _: int = 0) -> "FakeSession":
        async def effect() -> FakeSession:
            session = FakeSession(self._broker, self._process)
            self._sessions = [each for each in self._sessions if not each.is_closed]
            self._sessions.append(session)
            return session

        session: FakeSession = await self._process.call_broker("connect", effect)
        return session

    def close_sessions(self) -> None:
        for session in self._sessions:
            session.lose_connection()


class FakeSession:
    """A connection with one channel. The object is connection, channel and underlay at once."""

    def __init__(self, broker: FakeBroker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._subscriptions: list[tuple[str, Subscription]] = []
        self._exclusive: list[str] = []  # names of queues
        self._prefetch = float("inf")
        self._unacknowledged: dict[int, PendingDelivery] = {}  # by delivery tag
        self._last_tag = 0
        self._by_consumer_tag: dict[str, tuple[str, Subscription]] = {}
        self.is_closed = False
        self.close_callbacks = Callbacks()
        self.on_consumer_cancel_callbacks = Callbacks()

    async def channel(self, **_: bool) -> Self:
        return self

    async def get_underlay_channel(self) -> Self:
        return self

    async def set_qos(self, *, prefetch_count: int) -> None:
        self._prefetch = prefetch_count

    async def get_queue(self, name: str, **_: bool) -> "FakeQueue":
        return FakeQueue(self, name)

    async def declare_queue(self, name: str, *, passive: bool = False, **_: bool) -> "FakeQueue":
        if passive:  # without faults, because the other calls test lost responses
            return FakeQueue(self, name, ready=len(self._broker.queues[name].ready))

        async def effect() -> None:
            self._broker.declare(name)
            self._exclusive.append(name)

        await self.call("declare", effect)
        return FakeQueue(self, name)

    async def call(self, name: str, effect: Callable[[], Any]) -> Any:
        self._check_open()
        return await self._process.call_broker(name, effect)

    async def basic_consume(
        self, name: str, deliver: Callable[[DeliveredMessage], Awaitable[Any]]
    ) -> Basic.ConsumeOk:
        async def deliver_message(delivery: PendingDelivery) -> None:
            self._last_tag += 1
            self._unacknowledged[self._last_tag] = delivery
            await deliver(_delivered(delivery.message, self._last_tag))

        subscription = await self._subscribe(name, deliver_message, no_ack=False)
        tag = f"{len(self._subscriptions)}"
        self._by_consumer_tag[tag] = (name, subscription)
        return Basic.ConsumeOk(tag)

    async def basic_cancel(self, consumer_tag: str) -> None:
        self._broker.cancel(*self._by_consumer_tag.pop(consumer_tag))

    async def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:  # noqa: FBT001, FBT002  # the library's signature
        tags = [tag for tag in self._unacknowledged if multiple and tag <= delivery_tag]
        acknowledged = [self._unacknowledged.pop(tag) for tag in tags or [delivery_tag]]

        async def effect() -> None:
            for delivery in acknowledged:
                self._broker.acknowledge(delivery)

        await self.call("acknowledge", effect)

    async def basic_reject(self, delivery_tag: int, *, requeue: bool) -> None:
        """Fail, because the simulated database rejects no dead letter."""
        raise AssertionError(f"The dead letter {delivery_tag} is parked ({requeue=}).")

    async def consume(
        self, name: str, deliver: Callable[[Any], Awaitable[Any]], *, no_ack: bool
    ) -> Subscription:
        async def deliver_message(delivery: PendingDelivery) -> None:
            hint = ReceivedMessage.of(_delivered(delivery.message, 0), UnacknowledgedTags(self))
            await deliver(hint)

        return await self._subscribe(name, deliver_message, no_ack=no_ack)

    async def _subscribe(
        self,
        name: str,
        deliver_message: Callable[[PendingDelivery], Awaitable[None]],
        *,
        no_ack: bool,
    ) -> Subscription:

        subscription = Subscription(
            process=self._process,
            deliver=deliver_message,
            prefetch=self._prefetch,
            no_ack=no_ack,
        )

        async def effect() -> None:
            self._check_open()
            self._subscriptions.append((name, subscription))
            self._broker.consume(name, subscription)

        await self.call(f"consume {name}", effect)
        return subscription

    def _check_open(self) -> None:
        if self.is_closed:
            raise BrokerUnavailable("The connection must be open.")

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        self._broker.bind(queue, exchange, routing_key)

    def lose_connection(self) -> None:
        """Close the connection at the broker now, and notify the process when it runs."""
        if not self.is_closed:
            self.is_closed = True
            self._broker.close_connection(self._subscriptions, self._exclusive)
            for callback in self.close_callbacks:
                self._process.call_soon(callback)

    async def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._broker.close_connection(self._subscriptions, self._exclusive)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class FakeQueue:
    """A queue of a session. `ready` is the number of messages at a passive declaration."""

    def __init__(self, session: FakeSession, name: str, ready: int = 0) -> None:
        self.channel = self._session = session
        self.declaration_result = Queue.DeclareOk(message_count=ready)
        self._name = name

    async def bind(self, exchange: str, routing_key: str) -> None:
        self._session.bind(self._name, exchange, routing_key)

    async def consume(
        self, deliver: Callable[[Any], Awaitable[Any]], *, no_ack: bool = False
    ) -> Subscription:
        return await self._session.consume(self._name, deliver, no_ack=no_ack)


def _delivered(message: Message, tag: int) -> DeliveredMessage:
    """Return a message as the client library delivers it."""
    properties = Basic.Properties(
        message_type=message.type,
        message_id=message.message_id,
        reply_to=message.reply_to,
        correlation_id=message.correlation_id,
    )
    header = ContentHeader()
    header.properties = cast("Any", ReceivedProperties(properties.marshal()))
    return DeliveredMessage(
        delivery=Basic.Deliver("", tag, exchange=message.exchange, routing_key=message.routing_key),
        header=header,
        body=message.body,
        channel=cast("Any", None),  # the session acknowledges by tag
    )


class FakeExecutorLiveness:
    """The replacement of `ExecutorLiveness`, with the results of passive declarations."""

    def __init__(self, broker: FakeBroker, process: Process) -> None:
        self._broker = broker
        self._process = process

    async def is_gone(self, holder: str) -> bool:
        name = executor_control_queue(holder)
        return await self._check(lambda: name not in self._broker.queues)

    async def is_queue_empty(self, pool: str, lane: str) -> bool:
        name = work_queue(pool, Lane(lane)).name
        return await self._check(lambda: not self._broker.queues[name].ready)

    async def are_reports_read(self) -> bool:
        return await self._check(lambda: INTAKE.name in self._broker.queues)

    async def _check(self, condition: Callable[[], bool]) -> bool:
        async def effect() -> bool:
            return condition()

        try:
            is_true: bool = await self._process.call_broker("declare passively", effect)
        except BrokerUnavailable:
            return False
        return is_true
