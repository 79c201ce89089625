"""One queue with a consumer on it, and hands to publish to it and to break its connection."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from aio_pika.abc import AbstractChannel, AbstractConnection
from tests.integration.bootstrap.clocks import told
from tests.rig.tcp_line import Line

from harebell.client.connection import Connection, connect
from harebell.contract.dead_letter import DeadMessage
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.consumer import Consumer, Worker
from harebell.messaging.declare import declare
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.topology.bus import DEAD_LETTERS, SYSTEM
from harebell.runtime.clock import Clock

QUEUE = "inbox"
WITHIN = 30.0  # seconds
LOOK = 0.05  # seconds between looks at a queue


@dataclass
class Inbox:
    """`line` is what the consumer's connection goes through."""

    line: Line
    connection: AbstractConnection
    channel: AbstractChannel
    publisher: Publisher
    settler: Acknowledger
    sessions: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def declare_all(self) -> None:
        await declare(self.connection, SYSTEM)

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
        """Straight from the queue."""
        queue = await self.channel.get_queue(QUEUE)
        for _ in range(count):
            message = await queue.get(no_ack=True)
            assert message is not None
            yield message.body.decode()

    @asynccontextmanager
    async def consumed_by(
        self, worker: Callable[[Acknowledger], Worker], *, prefetch: int = 100
    ) -> AsyncIterator[Consumer]:
        """Stopped, and seen to end, when the block does."""
        consumer = Consumer(QUEUE, self._connect, lambda: worker(self.settler), prefetch=prefetch)
        stop = asyncio.Event()
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run(stop))
            yield consumer
            stop.set()

    async def _connect(self) -> AbstractConnection:
        self.sessions += 1
        self.changed.set()
        return await connect(self.line.url, name="consumes", properties={})

    async def until(self, is_so: Callable[[], bool]) -> None:
        """`changed` is to be set whenever it may have come to be so."""
        while not is_so():
            self.changed.clear()
            await self.changed.wait()

    async def ready(self, queue: str = QUEUE) -> int:
        declared = await self.channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def dead(self) -> DeadMessage:
        queue = await self.channel.get_queue(DEAD_LETTERS.name)
        async with asyncio.timeout(WITHIN), queue.iterator(no_ack=True) as letters:
            async for letter in letters:
                (dead,) = orjson.loads(letter.body)
                return DeadMessage.model_validate(dead)
        raise AssertionError


def body_of(dead: DeadMessage) -> str:
    return base64.b64decode(dead.body).decode()


@asynccontextmanager
async def open_inbox(amqp_url: str, kind: type[Line] = Line) -> AsyncIterator[Inbox]:
    clock = Clock(told)
    await clock.refresh()
    link = Connection(amqp_url, name="test publishes", properties={})
    async with kind.to(amqp_url) as line:
        connection = await connect(amqp_url, name="test", properties={})
        async with connection:
            channel = await connection.channel()
            publisher = Publisher(link)
            inbox = Inbox(line, connection, channel, publisher, Acknowledger(publisher, clock))
            await inbox.declare_all()
            await inbox.declare()
            yield inbox
        await link.close()
