"""Dispatchers on real servers, and the hands that publish tickets to them and take their work."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from tests.fakes.tickets import header
from tests.rig.servers import as_role

from harebell.client.connection import Connection, connect
from harebell.contract import amqp_names
from harebell.contract.amqp_names import Lane
from harebell.dispatcher.service import serve
from harebell.messaging.declare import declare
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.ticket_batches import TicketHeader, parse_ticket_headers
from harebell.messaging.ticket_messages import to_delay_queues
from harebell.messaging.topology.bus import (
    DEAD_LETTERS,
    DISPATCHER,
    SYSTEM,
    work_queue,
    work_topology,
)
from harebell.runtime.clock import Clock
from harebell.runtime.settings import DispatcherSettings
from harebell.storage.engine import database_time, open_pool

PATIENCE = 30  # seconds
LOOK = 0.05  # seconds between looks at a queue


@dataclass(frozen=True)
class Arrived:
    at: datetime
    ticket: TicketHeader

    @property
    def early(self) -> timedelta:
        return self.ticket.due_at - self.at


@dataclass
class Station:
    """What a test does around dispatchers."""

    amqp_url: str
    database_url: str
    clock: Clock
    publisher: Publisher
    channel: AbstractChannel
    arrived: list[Arrived] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def dispatcher(
        self, name: str = "dispatcher-1", *, patience: str = "0s"
    ) -> AsyncIterator[asyncio.Event]:
        """In this process; stopped, and seen to end, when the block does.

        `patience`: with the word of a ticker, of which there is none unless a test is one.
        """
        told = {"HAREBELL_BREAKER_STARTUP_TIMEOUT": patience}
        settings = DispatcherSettings.load(self.environment(name) | told)
        stop = asyncio.Event()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(settings, stop))
            yield stop
            stop.set()

    @asynccontextmanager
    async def process(self, name: str = "dispatcher-1") -> AsyncIterator[Process]:
        """One of its own, ready; it may be killed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harebell.dispatcher"),
            env=self.environment(name) | {"PYTHONPATH": ":".join(sys.path)},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def environment(self, name: str) -> dict[str, str]:
        return {
            "HAREBELL_AMQP_URL": self.amqp_url,
            "HAREBELL_DATABASE_URL": self.database_url,
            "HAREBELL_INSTANCE_ID": name,
            "HAREBELL_BREAKER_STARTUP_TIMEOUT": "0s",
        }

    def soon(self, seconds: float, *, tickets: int = 1, first: int = 0) -> list[TicketHeader]:
        """Tickets due then, numbered on."""
        due_at = self.clock.now() + timedelta(seconds=seconds)
        return [header(number, due_at) for number in range(first, first + tickets)]

    async def stage(self, tickets: Iterable[TicketHeader]) -> None:
        """As tickers do."""
        await self.publisher.publish_all(to_delay_queues(tickets, self.clock.now()))

    async def to_due(self, body: bytes) -> None:
        """Past the tiers."""
        kind = amqp_names.message_type("ticket.batch")
        await self.publisher.publish(
            OutgoingMessage(
                exchange=amqp_names.DUE,
                routing_key=amqp_names.DUE_KEY,
                body=body,
                type=kind,
                message_id="by hand",
            )
        )

    async def declare_pool(self, pool: str) -> None:
        """As executors do; takes its work from then on."""
        connection = await connect(self.amqp_url, name="declares", properties={})
        async with connection:
            await declare(connection, work_topology(pool))
        for lane in Lane:
            queue = await self.channel.get_queue(work_queue(pool, lane).name)
            await queue.consume(self._on_work, no_ack=True)

    async def _on_work(self, message: AbstractIncomingMessage) -> None:
        now = self.clock.now()
        self.arrived += [Arrived(now, ticket) for ticket in parse_ticket_headers(message.body)]
        self.changed.set()

    async def work(self, tickets: int) -> list[Arrived]:
        """Waits until so many have arrived."""
        async with asyncio.timeout(PATIENCE):
            while len(self.arrived) < tickets:
                self.changed.clear()
                await self.changed.wait()
        return self.arrived

    async def count(self, queue: str) -> int:
        """Messages that are ready in it."""
        told = await self.channel.declare_queue(queue, passive=True)
        return told.declaration_result.message_count or 0

    async def consumers(self) -> int:
        told = await self.channel.declare_queue(DISPATCHER.name, passive=True)
        return told.declaration_result.consumer_count or 0

    async def until_consuming(self, dispatchers: int = 1) -> None:
        await until(self.consumers, dispatchers)

    async def until_count(self, queue: str, messages: int) -> None:
        await until(lambda: self.count(queue), messages)

    async def dead_letter(self) -> AbstractIncomingMessage:
        queue = await self.channel.get_queue(DEAD_LETTERS.name)
        async with asyncio.timeout(PATIENCE), queue.iterator(no_ack=True) as letters:
            async for letter in letters:
                return letter
        raise AssertionError


async def until(number: Callable[[], Awaitable[int]], wanted: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await number() != wanted:  # noqa: ASYNC110  # a broker tells only when it is asked
            await asyncio.sleep(LOOK)


@pytest.fixture
async def station(amqp_url: str, database_url: str) -> AsyncIterator[Station]:
    """The topology declared, the default pool's work taken; no dispatcher yet."""
    role_url = as_role(database_url, "dispatcher")
    async with AsyncExitStack() as stack:
        pool: asyncpg.Pool = await stack.enter_async_context(open_pool(role_url, name="test"))
        clock = Clock(lambda: database_time(pool))
        await clock.refresh()
        link = Connection(amqp_url, name="test publishes", properties={})
        stack.push_async_callback(link.close)
        connection = await connect(amqp_url, name="test", properties={})
        await stack.enter_async_context(connection)
        await declare(connection, SYSTEM)
        channel = await connection.channel()
        station = Station(amqp_url, role_url, clock, Publisher(link), channel)
        await station.declare_pool("default")
        yield station
