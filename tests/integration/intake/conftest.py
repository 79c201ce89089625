"""An intake on real servers, with its users and the services behind it."""

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

from harebell.connection.amqp import connect
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommands
from harebell.intake.service import serve
from harebell.messaging.topology.bus import DEAD_LETTERS, DLQ, INTAKE, TICKER
from harebell.runtime.settings import IntakeSettings

TIMEOUT = 20  # seconds


@dataclass(kw_only=True)
class IntakeBus:
    """The queues before and behind an intake, and its database."""

    settings: IntakeSettings
    channel: AbstractChannel
    responses: AbstractQueue
    events: AbstractQueue
    database: asyncpg.Connection  # as the owner
    _received: dict[str, asyncio.Queue[bytes]] = field(default_factory=dict)
    _commands: list[Any] = field(default_factory=list)

    async def send(
        self,
        verb: str,
        body: Any,
        *,
        exchange: str = amqp_names.COMMANDS,
        tenant: str = "acme",
        **properties: Any,
    ) -> None:
        """Publish `body` as JSON, or unchanged if it is bytes."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        properties = {"reply_to": self.responses.name, "correlation_id": "c-1", **properties}
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.publish(aio_pika.Message(content, **properties), f"{tenant}.{verb}")

    async def query(self, verb: str, body: Any, *, tenant: str = "acme") -> Any:
        """Return the response to a query."""
        await self.send(verb, body, exchange=amqp_names.QUERIES, tenant=tenant)
        return await self.next_response()

    async def next_response(self) -> Any:
        return orjson.loads(await self._next(self.responses.name))

    def has_response(self) -> bool:
        """Return whether a response has arrived that no test has read."""
        received = self._received.get(self.responses.name)
        return received is not None and not received.empty()

    async def next_events(self) -> Any:
        """Return the next batch of events."""
        return orjson.loads(await self._next(self.events.name))

    async def next_commands(self, queue: str = TICKER.name) -> AcceptedCommands:
        """Return the commands of the next user message, which may share a message with others."""
        if not self._commands:
            content = orjson.loads(await self._next(queue))
            self._commands += content if isinstance(content, list) else [content]
        return AcceptedCommands.model_validate(self._commands.pop(0))

    async def next_dead_letter(self) -> Any:
        return orjson.loads(await self._next(DEAD_LETTERS.name))[0]

    async def message_counts(self) -> dict[str, int]:
        """Return the number of messages by queue, for the queues that have messages."""
        counts: dict[str, int] = {}
        for queue in (INTAKE, TICKER, DLQ, DEAD_LETTERS):
            declared = await self.channel.declare_queue(queue.name, passive=True)
            counts[queue.name] = declared.declaration_result.message_count or 0
        return {name: count for name, count in counts.items() if count}

    async def _next(self, name: str) -> bytes:
        if name not in self._received:
            received = self._received[name] = asyncio.Queue()
            queue = await self.channel.get_queue(name, ensure=False)

            async def receive(message: AbstractIncomingMessage) -> None:
                received.put_nowait(message.body)

            await queue.consume(receive, no_ack=True)
        async with asyncio.timeout(TIMEOUT):
            return await self._received[name].get()


@pytest.fixture
async def bus(core_url: str, database_url: str) -> AsyncIterator[IntakeBus]:
    """The queues without an intake, in which messages wait."""
    settings = IntakeSettings.load(
        {
            "HAREBELL_AMQP_URL": core_url,
            "HAREBELL_DATABASE_URL": as_role(database_url, "intake"),
            "HAREBELL_ALLOWED_NETWORKS": "127.0.0.0/8",
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }
    )
    connection = await connect(core_url, name="test", properties={})
    database = await asyncpg.connect(database_url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        responses = await channel.declare_queue(exclusive=True)
        events = await channel.declare_queue(exclusive=True)
        await events.bind(amqp_names.EVENTS, "#")
        yield IntakeBus(
            settings=settings,
            channel=channel,
            responses=responses,
            events=events,
            database=database,
        )
    await database.close()


@pytest.fixture
async def intake(bus: IntakeBus) -> AsyncIterator[IntakeBus]:
    """The queues with a running intake, which stops after the test."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(bus.settings, stop))
        yield bus
        stop.set()
