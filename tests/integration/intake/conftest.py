"""An intake on real servers, and the hands that write to it and see what it lets out."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aio_pika
import asyncpg
import orjson
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from tests.rig.servers import as_role

from harebell.client.connection import connect
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommands
from harebell.intake.service import serve
from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import DEAD_LETTERS, DLQ, INTAKE, SYSTEM, TICKER
from harebell.runtime.settings import IntakeSettings

PATIENCE = 20  # seconds


@dataclass
class Street:
    """What lies before the door and behind it."""

    settings: IntakeSettings
    channel: AbstractChannel
    answers: AbstractQueue
    events: AbstractQueue
    database: asyncpg.Connection  # as the owner
    _arrived: dict[str, asyncio.Queue[bytes]] = field(default_factory=dict)

    async def send(
        self,
        verb: str,
        body: Any,
        *,
        exchange: str = amqp_names.COMMANDS,
        tenant: str = "acme",
        **given: Any,
    ) -> None:
        """`body` as JSON, unless it is bytes."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        properties = {"reply_to": self.answers.name, "correlation_id": "c-1", **given}
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.publish(aio_pika.Message(content, **properties), f"{tenant}.{verb}")

    async def ask(self, verb: str, body: Any, *, tenant: str = "acme") -> Any:
        """The answer to a query."""
        await self.send(verb, body, exchange=amqp_names.QUERIES, tenant=tenant)
        return await self.answer()

    async def answer(self) -> Any:
        return orjson.loads(await self._next(self.answers.name))

    def is_answered(self) -> bool:
        """Whether an answer has come that nobody has looked at."""
        return self.answers.name in self._arrived and not self._arrived[self.answers.name].empty()

    async def told(self) -> Any:
        """The next batch of events."""
        return orjson.loads(await self._next(self.events.name))

    async def change(self, queue: str = TICKER.name) -> AcceptedCommands:
        return AcceptedCommands.model_validate_json(await self._next(queue))

    async def dead(self) -> Any:
        return orjson.loads(await self._next(DEAD_LETTERS.name))[0]

    async def waiting(self) -> dict[str, int]:
        """Messages in the queues of ours that commands could come to, where there are any."""
        counts: dict[str, int] = {}
        for queue in (INTAKE, TICKER, DLQ, DEAD_LETTERS):
            found = await self.channel.declare_queue(queue.name, passive=True)
            counts[queue.name] = found.declaration_result.message_count or 0
        return {name: count for name, count in counts.items() if count}

    async def _next(self, name: str) -> bytes:
        if name not in self._arrived:
            arrived = self._arrived[name] = asyncio.Queue()
            queue = await self.channel.get_queue(name, ensure=False)

            async def keep(message: AbstractIncomingMessage) -> None:
                arrived.put_nowait(message.body)

            await queue.consume(keep, no_ack=True)
        async with asyncio.timeout(PATIENCE):
            return await self._arrived[name].get()


@pytest.fixture
async def street(amqp_url: str, database_url: str) -> AsyncIterator[Street]:
    """Before the intake is there: what is sent waits for it."""
    settings = IntakeSettings.load(
        {
            "HAREBELL_AMQP_URL": amqp_url,
            "HAREBELL_DATABASE_URL": as_role(database_url, "intake"),
            "HAREBELL_ALLOWED_NETWORKS": "127.0.0.0/8",
        }
    )
    connection = await connect(amqp_url, name="test", properties={})
    database = await asyncpg.connect(database_url)
    async with connection:
        await declare(connection, SYSTEM)
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        answers = await channel.declare_queue(exclusive=True)
        events = await channel.declare_queue(exclusive=True)
        await events.bind(amqp_names.EVENTS, "#")
        yield Street(settings, channel, answers, events, database)
    await database.close()


@pytest.fixture
async def intake(street: Street) -> AsyncIterator[Street]:
    """With the intake at work; it stops on its own when asked to."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(street.settings, stop))
        yield street
        stop.set()
