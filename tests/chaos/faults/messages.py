"""Rows 25 to 28: messages that are rubbish, forged, repeated or out of their order."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aio_pika
import orjson
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from tests.chaos.environment import NAMES, Scene
from tests.chaos.faults.registry import fault
from tests.chaos.result import Kind

from harebell.messaging.topology.bus import SYSTEM

MEGABYTE: Final = 1024 * 1024
DEEP: Final = 10_000  # levels
RUBBISH: Final[Sequence[bytes]] = (
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
DIRECT: Final = {"harebell.changes": ("schedule", "dlq")}  # the keys of an exchange without topics
LATER: Final = 3.0  # seconds until a message comes once more


@asynccontextmanager
async def channel(scene: Scene) -> AsyncIterator[AbstractChannel]:
    connection = await aio_pika.connect(scene.stack.amqp_url)
    async with connection:
        yield await connection.channel()


def pids(scene: Scene) -> dict[str, int | None]:
    found = {name: scene.stack.services.process(name) for name in NAMES}
    return {name: None if process is None else process.pid for name, process in found.items()}


@fault("25", "rubbish on every queue")
async def rubbish(scene: Scene) -> AsyncIterator[None]:
    """Nobody dies of it, and nobody chews it for ever."""
    before = pids(scene)
    async with channel(scene) as wire:
        for queue in SYSTEM.queues:
            if queue.name.startswith("harebell.events"):
                continue
            for body in RUBBISH:
                message = aio_pika.Message(body, delivery_mode=2)
                await wire.default_exchange.publish(message, queue.name)
    yield
    if pids(scene) != before:
        scene.find(Kind.RECORD, "services", f"ended over rubbish: {before} are now {pids(scene)}")


@dataclass
class Copies:
    """What went over the exchanges meanwhile, with its exchange and key."""

    messages: list[AbstractIncomingMessage] = field(default_factory=list)

    async def keep(self, message: AbstractIncomingMessage) -> None:
        self.messages.append(message)


@asynccontextmanager
async def copies(wire: AbstractChannel) -> AsyncIterator[Copies]:
    kept = Copies()
    queue = await wire.declare_queue(exclusive=True)
    for exchange in COPIED:
        for key in DIRECT.get(exchange, ("#",)):
            await queue.bind(exchange, key)
    tag = await queue.consume(kept.keep, no_ack=True)
    try:
        yield kept
    finally:
        await queue.cancel(tag)


async def say_again(
    wire: AbstractChannel, message: AbstractIncomingMessage, body: bytes | None = None
) -> None:
    """Nobody waits for a second answer."""
    again = aio_pika.Message(
        message.body if body is None else body,
        headers=message.headers,
        content_type=message.content_type,
        type=message.type,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        app_id=message.app_id,
        delivery_mode=2,
    )
    exchange = await wire.get_exchange(message.exchange or "", ensure=False)
    await exchange.publish(again, message.routing_key or "")


@fault("27", "every message twice, ten times, and again later")
async def repeated(scene: Scene) -> AsyncIterator[None]:
    async with channel(scene) as wire:
        async with copies(wire) as kept:
            yield
        for message in kept.messages:
            for _ in range(scene.dice.choice([1, 1, 1, 9])):
                await say_again(wire, message)
        await asyncio.sleep(LATER)
        for message in scene.dice.sample(kept.messages, len(kept.messages)):
            await say_again(wire, message)
    scene.notes["copied"] = len(kept.messages)


@fault("26", "forged tickets: other numbers, unknown schedules, attempts that never were")
async def forged(scene: Scene) -> AsyncIterator[None]:
    async with channel(scene) as wire:
        async with copies(wire) as kept:
            yield
        bundles = [each for each in kept.messages if each.exchange == "harebell.work"]
        for message in bundles:
            for forge in FORGERIES:
                bundle = [ticket | forge(ticket) for ticket in orjson.loads(message.body)]
                await say_again(wire, message, orjson.dumps(bundle))
    scene.notes["forged"] = len(bundles) * len(FORGERIES)


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
class Detour:
    """Instead of a queue's messages, a queue of ours gets them."""

    exchange: str
    key: str
    queue: str


DETOURS: Final = (
    Detour("harebell.work", "default.normal", "harebell.work.default.normal"),
    Detour("harebell.work", "default.low", "harebell.work.default.low"),
    Detour("harebell.due", "#", "harebell.dispatcher"),
)


@fault("28", "messages kept back and let go in another order")
async def shuffled(scene: Scene) -> AsyncIterator[None]:
    async with channel(scene) as wire:
        kept = Copies()
        ours = await wire.declare_queue(exclusive=True)
        await ours.consume(kept.keep, no_ack=True)
        for detour in DETOURS:
            await _turn(wire, detour, ours, there=True)
        yield
        for detour in DETOURS:
            await _turn(wire, detour, ours, there=False)
        for message in scene.dice.sample(kept.messages, len(kept.messages)):
            await say_again(wire, message)
    scene.notes["shuffled"] = len(kept.messages)


async def _turn(wire: AbstractChannel, detour: Detour, ours: AbstractQueue, *, there: bool) -> None:
    theirs: Any = await wire.get_queue(detour.queue, ensure=False)
    to, away = (ours, theirs) if there else (theirs, ours)
    await to.bind(detour.exchange, detour.key)
    await away.unbind(detour.exchange, detour.key)
