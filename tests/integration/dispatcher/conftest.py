"""Dispatchers on real servers, with a fake ticker and a fake pool around them."""

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
from tests.rig.command_line import end
from tests.rig.polling import until
from tests.rig.servers import as_role

from harebell.connection.amqp import Connection, connect
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

TIMEOUT = 30  # seconds


@dataclass(frozen=True)
class ReceivedTicket:
    """A ticket that an executor received, with the time of its arrival."""

    at: datetime
    ticket: TicketHeader

    @property
    def lead(self) -> timedelta:
        return self.ticket.due_at - self.at


@dataclass(kw_only=True)
class DispatcherRig:
    """The services around the dispatchers of a test."""

    amqp_url: str
    database_url: str
    clock: Clock
    publisher: Publisher
    channel: AbstractChannel
    received: list[ReceivedTicket] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def dispatcher(
        self, name: str = "dispatcher-1", *, startup_timeout: str = "0s"
    ) -> AsyncIterator[asyncio.Event]:
        """Run a dispatcher in this process, which stops at the end of the block.

        `startup_timeout` is the wait for a breaker snapshot, which only a test sends.
        """
        timeout = {"HAREBELL_BREAKER_STARTUP_TIMEOUT": startup_timeout}
        settings = DispatcherSettings.load(self.environment(name) | timeout)
        stop = asyncio.Event()
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(settings, stop))
            yield stop
            stop.set()

    @asynccontextmanager
    async def process(self, name: str = "dispatcher-1") -> AsyncIterator[Process]:
        """Run a dispatcher in a new process, which the test may kill."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "harebell.dispatcher",
            env=self.environment(name) | {"PYTHONPATH": ":".join(sys.path)},
        )
        try:
            yield process
        finally:
            await end(process)

    def environment(self, name: str) -> dict[str, str]:
        return {
            "HAREBELL_AMQP_URL": self.amqp_url,
            "HAREBELL_DATABASE_URL": self.database_url,
            "HAREBELL_INSTANCE_ID": name,
            "HAREBELL_BREAKER_STARTUP_TIMEOUT": "0s",
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }

    def tickets_due_in(
        self, seconds: float, *, tickets: int = 1, first: int = 0
    ) -> list[TicketHeader]:
        """Return tickets that are due after `seconds`, numbered from `first`."""
        due_at = self.clock.now() + timedelta(seconds=seconds)
        return [header(number, due_at) for number in range(first, first + tickets)]

    async def stage(self, tickets: Iterable[TicketHeader]) -> None:
        """Publish the tickets to the delay queues, as a ticker does."""
        await self.publisher.publish_all(to_delay_queues(tickets, self.clock.now()))

    async def publish_due(self, body: bytes) -> None:
        """Publish a batch directly to the dispatcher."""
        message_type = amqp_names.message_type("ticket.batch")
        await self.publisher.publish(
            OutgoingMessage(
                exchange=amqp_names.DUE,
                routing_key=amqp_names.DUE_KEY,
                body=body,
                type=message_type,
                message_id="test",
            )
        )

    async def declare_pool(self, pool: str) -> None:
        """Declare the work queues of a pool and consume them, as an executor does."""
        connection = await connect(self.amqp_url, name="test declares", properties={})
        async with connection:
            await declare(connection, work_topology(pool))
        for lane in Lane:
            queue = await self.channel.get_queue(work_queue(pool, lane).name)
            await queue.consume(self._on_work, no_ack=True)

    async def _on_work(self, message: AbstractIncomingMessage) -> None:
        now = self.clock.now()
        tickets = parse_ticket_headers(message.body)
        self.received += [ReceivedTicket(now, ticket) for ticket in tickets]
        self.changed.set()

    async def receive(self, tickets: int) -> list[ReceivedTicket]:
        """Wait until executors have received a number of tickets."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.received) < tickets:
                self.changed.clear()
                await self.changed.wait()
        return self.received

    async def count(self, queue: str) -> int:
        """Return the number of ready messages."""
        declared = await self.channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def consumers(self) -> int:
        declared = await self.channel.declare_queue(DISPATCHER.name, passive=True)
        return declared.declaration_result.consumer_count or 0

    async def until_consuming(self, dispatchers: int = 1) -> None:
        await until_equal(self.consumers, dispatchers)

    async def until_count(self, queue: str, messages: int) -> None:
        await until_equal(lambda: self.count(queue), messages)

    async def dead_letter(self) -> AbstractIncomingMessage:
        queue = await self.channel.get_queue(DEAD_LETTERS.name)
        async with asyncio.timeout(TIMEOUT), queue.iterator(no_ack=True) as dead_letters:
            async for dead_letter in dead_letters:
                return dead_letter
        raise AssertionError


async def until_equal(count: Callable[[], Awaitable[int]], expected: int) -> None:
    async def is_equal() -> bool:
        return await count() == expected

    await until(is_equal, within=TIMEOUT, what=f"a count of {expected}")


@pytest.fixture
async def rig(amqp_url: str, database_url: str) -> AsyncIterator[DispatcherRig]:
    """A declared topology with the pool `default`, without a dispatcher."""
    role_url = as_role(database_url, "dispatcher")
    async with AsyncExitStack() as stack:
        pool: asyncpg.Pool = await stack.enter_async_context(open_pool(role_url, name="test"))
        clock = Clock(lambda: database_time(pool))
        await clock.refresh()
        publishing = Connection(amqp_url, name="test publishes", properties={})
        stack.push_async_callback(publishing.close)
        connection = await connect(amqp_url, name="test", properties={})
        await stack.enter_async_context(connection)
        await declare(connection, SYSTEM)
        channel = await connection.channel()
        rig = DispatcherRig(
            amqp_url=amqp_url,
            database_url=role_url,
            clock=clock,
            publisher=Publisher(publishing),
            channel=channel,
        )
        await rig.declare_pool("default")
        yield rig
