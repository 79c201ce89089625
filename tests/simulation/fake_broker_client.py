"""What services hold of the broker, in the client library's shape: a link, sessions, presence."""

from collections.abc import Awaitable, Callable
from typing import Any, Self

import aio_pika
from pamqp.commands import Queue
from tests.simulation.bus import Broker, Consumer, Delivered, Message
from tests.simulation.process import Process

from harebell.contract.amqp_names import Lane
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.topology.bus import executor_control_queue, work_queue


class Callbacks(list[Callable[..., None]]):
    """The library's are sets; their order would be chance."""

    def add(self, callback: Callable[..., None]) -> None:
        self.append(callback)


class Link:
    """Publishes, and opens sessions; `hang_up` ends those that are open."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._sessions: list[Session] = []

    @property
    def is_open(self) -> bool:
        return True

    async def open(self) -> None:
        """It is whenever it is used."""

    async def publish(
        self, exchange: str, routing_key: str, message: aio_pika.Message, **_: float
    ) -> None:
        sent = Message(
            exchange, routing_key, message.body, message.message_id, message.type,
            message.reply_to, message.correlation_id,
        )  # fmt: skip

        async def effect() -> bool:
            return self._broker.publish(sent)

        if not await self._process.broker(f"publish to {exchange}/{routing_key}", effect):
            raise Unroutable(f"no queue is bound to {exchange} for {routing_key!r}")

    async def connect(self, _: int = 0) -> "Session":
        async def effect() -> Session:
            session = Session(self._broker, self._process)
            self._sessions = [each for each in self._sessions if not each.is_closed]
            self._sessions.append(session)
            return session

        session: Session = await self._process.broker("connect", effect)
        return session

    def hang_up(self) -> None:
        for session in self._sessions:
            session.end()


class Session:
    """A connection with its one channel, which is its own underlay."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._consuming: list[tuple[str, Consumer]] = []
        self._own: list[str] = []  # exclusive queues
        self._prefetch = float("inf")
        self.is_closed = False
        self.close_callbacks = Callbacks()
        self.on_consumer_cancel_callbacks = Callbacks()

    async def channel(self, **_: bool) -> Self:
        return self

    async def get_underlay_channel(self) -> Self:
        return self

    async def set_qos(self, *, prefetch_count: int) -> None:
        self._prefetch = prefetch_count

    async def get_queue(self, name: str, **_: bool) -> "QueueOf":
        return QueueOf(self, name)

    async def declare_queue(self, name: str, *, passive: bool = False, **_: bool) -> "QueueOf":
        if passive:  # always answered: what a lost answer does, other questions show
            return QueueOf(self, name, waiting=len(self._broker.queues[name].ready))

        async def effect() -> None:
            self._broker.declare(name)
            self._own.append(name)

        await self.ask("declare", effect)
        return QueueOf(self, name)

    async def ask(self, what: str, effect: Callable[[], Any]) -> Any:
        if self.is_closed:
            raise BrokerUnavailable("the connection is lost")
        return await self._process.broker(what, effect)

    async def consume(
        self, name: str, deliver: Callable[[Any], Awaitable[Any]], *, no_ack: bool
    ) -> Consumer:
        async def handed(delivered: Delivered) -> None:
            await deliver(Incoming(self, delivered))

        consumer = Consumer(self._process, handed, self._prefetch, no_ack)

        async def effect() -> None:
            if self.is_closed:
                raise BrokerUnavailable("the connection is lost")
            self._consuming.append((name, consumer))
            self._broker.consume(name, consumer)

        await self.ask(f"consume {name}", effect)
        return consumer

    async def cancel(self, name: str, consumer: Consumer) -> None:
        self._broker.cancel(name, consumer)

    async def acknowledge(self, delivered: Delivered) -> None:
        async def effect() -> None:
            self._broker.acknowledge(delivered)

        await self.ask("acknowledge", effect)

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        self._broker.bind(queue, exchange, routing_key)

    def end(self) -> None:
        """The broker sees it gone; its process is told when it can hear."""
        if not self.is_closed:
            self.is_closed = True
            self._broker.leave(self._consuming, self._own)
            for told in self.close_callbacks:
                self._process.soon(told)

    async def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._broker.leave(self._consuming, self._own)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class QueueOf:
    """One queue as a session sees it, and when it has looked, how many messages wait."""

    def __init__(self, session: Session, name: str, waiting: int = 0) -> None:
        self.channel = self._session = session
        self.declaration_result = Queue.DeclareOk(message_count=waiting)
        self._name = name

    async def bind(self, exchange: str, routing_key: str) -> None:
        self._session.bind(self._name, exchange, routing_key)

    async def consume(
        self, deliver: Callable[[Any], Awaitable[Any]], *, no_ack: bool = False
    ) -> Consumer:
        return await self._session.consume(self._name, deliver, no_ack=no_ack)

    async def cancel(self, consumer: Consumer) -> None:
        await self._session.cancel(self._name, consumer)


class Incoming:
    """A delivery as the library hands it over."""

    def __init__(self, session: Session, delivered: Delivered) -> None:
        self._session = session
        self._delivered = delivered
        message = delivered.message
        self.body = message.body
        self.exchange = message.exchange
        self.routing_key = message.routing_key
        self.message_id = message.message_id
        self.type = message.type
        self.reply_to = message.reply_to
        self.correlation_id = message.correlation_id
        self.user_id: str | None = None
        self.headers: dict[str, Any] = {}

    async def ack(self) -> None:
        await self._session.acknowledge(self._delivered)


class Presence:
    """In place of `harebell.ticker.presence`: what passive declarations would tell."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process

    async def is_gone(self, holder: str) -> bool:
        return await self._look(lambda: executor_control_queue(holder) not in self._broker.queues)

    async def is_queue_empty(self, pool: str, lane: str) -> bool:
        name = work_queue(pool, Lane(lane)).name
        return await self._look(lambda: not self._broker.queues[name].ready)

    async def _look(self, is_so: Callable[[], bool]) -> bool:
        async def effect() -> bool:
            return is_so()

        try:
            found: bool = await self._process.broker("look at a queue", effect)
        except BrokerUnavailable:
            return False
        return found
