"""Rows 25 to 28: invalid, forged, repeated and reordered messages."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import aio_pika
import orjson
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from pydantic import TypeAdapter, ValidationError
from tests.chaos.environment import NAMES, Environment
from tests.chaos.faults.registry import fault
from tests.chaos.result import FindingKind

from harebell.contract.ticket import Ticket
from harebell.messaging.topology.bus import SYSTEM

MEGABYTE: Final = 1024 * 1024
DEEP: Final = 10_000  # levels
INVALID_BODIES: Final[Sequence[bytes]] = (
    b"",
    b"\x00",
    b"not json",
    b'{"cut": ',
    b"\xff\xfe\xfa",
    b"null",
    b"[]",
    b"{}",
    b"[{}]",
    b'"text"',
    b"1e999",
    b"NaN",
    b'{"a": "\\ud800"}',
    b'{"a": "\\u0000"}',
    b'{"seq": 9223372036854775808}',
    b'[{"seq": 1, "seq": 2}]',
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    zlib.compress(b"0" * MEGABYTE),
    b"[" + b'"x",' * (MEGABYTE // 4) + b"1]",
    b"x" * (4 * MEGABYTE),
)
COPIED: Final = ("harebell.work", "harebell.due", "harebell.changes", "harebell.commands")
_TICKETS: Final = TypeAdapter(list[Ticket])
Json: TypeAlias = dict[str, Any]
DIRECT_KEYS: Final = {"harebell.changes": ("schedule", "dlq")}  # of exchanges without topics
SECOND_REPEAT: Final = 3.0  # seconds until each message is published again


@asynccontextmanager
async def open_channel(environment: Environment) -> AsyncIterator[AbstractChannel]:
    connection = await aio_pika.connect(environment.stack.amqp_url)
    async with connection:
        yield await connection.channel()


def tickets_in(body: bytes) -> list[Json]:
    """Return the tickets of a batch, or none of an invalid message that left a delay queue."""
    try:
        _TICKETS.validate_json(body)
    except ValidationError:
        return []
    tickets: list[Json] = orjson.loads(body)
    return tickets


def pids(environment: Environment) -> dict[str, int | None]:
    processes = {name: environment.stack.services.process(name) for name in NAMES}
    return {name: None if each is None else each.pid for name, each in processes.items()}


@fault("25", "invalid messages on every queue")
async def invalid(environment: Environment) -> AsyncIterator[None]:
    """Check that no service ends or repeats an invalid message without end."""
    before = pids(environment)
    async with open_channel(environment) as channel:
        for queue in SYSTEM.queues:
            if queue.name.startswith("harebell.events"):
                continue
            for body in INVALID_BODIES:
                message = aio_pika.Message(body, delivery_mode=2)
                await channel.default_exchange.publish(message, queue.name)
    yield
    if (after := pids(environment)) != before:
        text = f"a service ended after an invalid message: {before} are now {after}"
        environment.add_finding(FindingKind.INCONSISTENT, "services", text)


@dataclass
class Copies:
    """The copied messages, each with its exchange and routing key."""

    messages: list[AbstractIncomingMessage] = field(default_factory=list)

    async def add(self, message: AbstractIncomingMessage) -> None:
        self.messages.append(message)


@asynccontextmanager
async def copy_messages(channel: AbstractChannel) -> AsyncIterator[Copies]:
    """Copy every message that the exchanges receive within the context."""
    copies = Copies()
    queue = await channel.declare_queue(exclusive=True)
    for exchange in COPIED:
        for key in DIRECT_KEYS.get(exchange, ("#",)):
            await queue.bind(exchange, key)
    tag = await queue.consume(copies.add, no_ack=True)
    try:
        yield copies
    finally:
        await queue.cancel(tag)


async def republish(
    channel: AbstractChannel, message: AbstractIncomingMessage, body: bytes | None = None
) -> None:
    """Publish a message again without `reply_to`, because no client waits for a second reply."""
    repeated = aio_pika.Message(
        message.body if body is None else body,
        headers=message.headers,
        content_type=message.content_type,
        type=message.type,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        app_id=message.app_id,
        delivery_mode=2,
    )
    exchange = await channel.get_exchange(message.exchange or "", ensure=False)
    await exchange.publish(repeated, message.routing_key or "")


@fault("27", "every message twice, ten times, and again later")
async def repeated(environment: Environment) -> AsyncIterator[None]:
    async with open_channel(environment) as channel:
        async with copy_messages(channel) as copies:
            yield
        for message in copies.messages:
            for _ in range(environment.random.choice([1, 1, 1, 9])):
                await republish(channel, message)
        await asyncio.sleep(SECOND_REPEAT)
        for message in environment.random.sample(copies.messages, len(copies.messages)):
            await republish(channel, message)
    environment.measurements["copied"] = len(copies.messages)


@fault("26", "forged tickets: other numbers, unknown schedules, attempts that never existed")
async def forged(environment: Environment) -> AsyncIterator[None]:
    async with open_channel(environment) as channel:
        async with copy_messages(channel) as copies:
            yield
        batches = [each for each in copies.messages if each.exchange == "harebell.work"]
        for message in batches:
            for forge in FORGERIES:
                tickets = [ticket | forge(ticket) for ticket in tickets_in(message.body)]
                await republish(channel, message, orjson.dumps(tickets))
    environment.measurements["forged"] = len(batches) * len(FORGERIES)


FORGERIES: Final = (
    lambda _: {"schedule_id": "00000000-0000-5000-8000-000000000007"},
    lambda ticket: {"seq": ticket["seq"] + 1},
    lambda ticket: {"seq": ticket["seq"] + 2, "replay_number": 1},
    lambda ticket: {"seq": 1, "version": ticket["version"] + 1},
    lambda _: {"scheduled_for": "2020-01-01T00:00:00.000Z"},
    lambda _: {"scheduled_for": "2099-01-01T00:00:00.000Z", "due_at": "2099-01-01T00:00:00.000Z"},
    lambda _: {"expires_at": "2020-01-01T00:00:00.000Z"},
)


@dataclass(frozen=True)
class Binding:
    """The binding of a queue, which another queue can replace."""

    exchange: str
    key: str
    queue: str


REPLACED_BINDINGS: Final = (
    Binding("harebell.work", "default.normal", "harebell.work.default.normal"),
    Binding("harebell.work", "default.low", "harebell.work.default.low"),
    Binding("harebell.due", "#", "harebell.dispatcher"),
)


@fault("28", "messages delayed and delivered in another order")
async def shuffled(environment: Environment) -> AsyncIterator[None]:
    async with open_channel(environment) as channel:
        copies = Copies()
        collector = await channel.declare_queue(exclusive=True)
        await collector.consume(copies.add, no_ack=True)
        for binding in REPLACED_BINDINGS:
            await _rebind(binding, old=await _queue_of(channel, binding), new=collector)
        yield
        for binding in REPLACED_BINDINGS:
            await _rebind(binding, old=collector, new=await _queue_of(channel, binding))
        for message in environment.random.sample(copies.messages, len(copies.messages)):
            await republish(channel, message)
    environment.measurements["shuffled"] = len(copies.messages)


async def _queue_of(channel: AbstractChannel, binding: Binding) -> Any:
    return await channel.get_queue(binding.queue, ensure=False)


async def _rebind(binding: Binding, *, old: AbstractQueue, new: AbstractQueue) -> None:
    """Bind the new queue before the old one is unbound, so that no message is lost."""
    await new.bind(binding.exchange, binding.key)
    await old.unbind(binding.exchange, binding.key)
