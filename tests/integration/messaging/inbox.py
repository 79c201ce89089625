"""A queue with a consumer, whose connection a test can break."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from aio_pika.abc import AbstractChannel, AbstractConnection
from tests.integration.bootstrap.clocks import fixed_time
from tests.rig.tcp_proxy import TcpProxy

from harebell.connection.amqp import Connection, connect
from harebell.contract.dead_letter import DeadMessage
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.consumer import Accepts, Consumer, OptionalQueues, Worker
from harebell.messaging.declare import declare
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.topology.bus import CORE, DEAD_LETTERS
from harebell.runtime.clock import Clock

QUEUE = "inbox"
WITHIN = 30.0  # seconds


@dataclass(kw_only=True)
class Inbox:
    """A queue, and the parts that publish to it and consume from it.

    The connection of the consumer passes through `proxy`.
    """

    proxy: TcpProxy
    connection: AbstractConnection
    channel: AbstractChannel
    publisher: Publisher
    acknowledger: Acknowledger
    sessions: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def declare_all(self) -> None:
        await declare(self.connection, CORE)

    async def declare(self) -> None:
        await self.channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})

    async def put(self, *bodies: str) -> None:
        await self.publisher.publish_all(
            OutgoingMessage(
                exchange="", routing_key=QUEUE, body=body.encode(), type="test", message_id=body
            )
            for body in bodies
        )

    async def take(self, count: int) -> AsyncIterator[str]:
        """Yield the bodies of messages without a consumer."""
        queue = await self.channel.get_queue(QUEUE)
        for _ in range(count):
            message = await queue.get(no_ack=True)
            assert message is not None
            yield message.body.decode()

    @asynccontextmanager
    async def consumed_by(
        self,
        worker: Callable[[Acknowledger], Worker],
        *,
        prefetch: int = 100,
        accepts: Accepts = lambda _: True,
        optional: Sequence[str] = (),
    ) -> AsyncIterator[Consumer]:
        """Run a consumer of the queue, or of the optional ones, and stop it after the block."""
        consumer = Consumer(
            None if optional else QUEUE,
            self._connect,
            lambda: worker(self.acknowledger),
            prefetch=prefetch,
            accepts=accepts,
            optional=OptionalQueues(names=lambda: optional, prefetch=prefetch),
        )
        stop = asyncio.Event()
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run(stop))
            yield consumer
            stop.set()

    async def _connect(self) -> AbstractConnection:
        self.sessions += 1
        self.changed.set()
        return await connect(self.proxy.url, name="consumes", properties={})

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for the condition. A test sets `changed` after each change of its values."""
        while not is_true():
            self.changed.clear()
            await self.changed.wait()

    async def ready(self, queue: str = QUEUE) -> int:
        declared = await self.channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def dead(self) -> DeadMessage:
        queue = await self.channel.get_queue(DEAD_LETTERS.name)
        async with asyncio.timeout(WITHIN), queue.iterator(no_ack=True) as messages:
            async for message in messages:
                (dead,) = orjson.loads(message.body)
                return DeadMessage.model_validate(dead)
        raise AssertionError


def body_of(dead: DeadMessage) -> str:
    return base64.b64decode(dead.body).decode()


@asynccontextmanager
async def open_inbox(amqp_url: str, kind: type[TcpProxy] = TcpProxy) -> AsyncIterator[Inbox]:
    clock = Clock(fixed_time)
    await clock.refresh()
    publishing = Connection(amqp_url, name="test publishes", properties={})
    async with kind.open(amqp_url) as proxy:
        connection = await connect(amqp_url, name="test", properties={})
        async with connection:
            channel = await connection.channel()
            publisher = Publisher(publishing)
            inbox = Inbox(
                proxy=proxy,
                connection=connection,
                channel=channel,
                publisher=publisher,
                acknowledger=Acknowledger(publisher, clock),
            )
            await inbox.declare_all()
            await inbox.declare()
            yield inbox
        await publishing.close()
