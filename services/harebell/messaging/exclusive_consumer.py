"""A queue of one instance's own: hints, heard while it is there and by nobody afterwards."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from pamqp.common import FieldValue

from harebell.client.connection import ANSWER_TIMEOUT, close, translate_amqp_errors
from harebell.contract.errors import InvalidInput, Transient
from harebell.runtime.clock import monotonic
from harebell.runtime.retries import LONGEST_PAUSE, backoff_delay

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ExclusiveQueue:
    """Exclusive: the broker deletes the queue with the connection. `bindings`: exchange, key."""

    queue: str
    bindings: Sequence[tuple[str, str]]
    arguments: Mapping[str, FieldValue] = field(default_factory=dict)


async def consume_exclusively(
    connect: Callable[[], Awaitable[AbstractConnection]],
    ear: ExclusiveQueue,
    hear: Callable[[AbstractIncomingMessage], Awaitable[None]],
    *,
    opened: Callable[[], Awaitable[None]] | None = None,
    lost: Callable[[], None] = lambda: None,
) -> None:
    """Until cancelled. What cannot be read, or followed now, is let go: these are hints."""
    tries = 0
    while True:
        began = monotonic()
        try:
            with translate_amqp_errors("the session has ended"):
                connection = await connect()
                try:
                    await _listen(connection, ear, hear, opened)
                finally:
                    lost()
                    await close(connection)
        except Transient as error:
            log.warning("not listening", queue=ear.queue, error=error.reason)
        tries = 1 if monotonic() - began > LONGEST_PAUSE else tries + 1
        await asyncio.sleep(backoff_delay(tries))


async def _listen(
    connection: AbstractConnection,
    ear: ExclusiveQueue,
    hear: Callable[[AbstractIncomingMessage], Awaitable[None]],
    opened: Callable[[], Awaitable[None]] | None,
) -> None:
    over = asyncio.Event()
    connection.close_callbacks.add(lambda *_: over.set())

    async def heard(message: AbstractIncomingMessage) -> None:
        try:
            await hear(message)
        except (InvalidInput, Transient) as error:
            log.warning("hint not followed", error=error.code, reason=error.reason)

    async with asyncio.timeout(ANSWER_TIMEOUT):
        channel = await connection.channel(publisher_confirms=False)
        channel.close_callbacks.add(lambda *_: over.set())
        queue = await channel.declare_queue(
            ear.queue, exclusive=True, arguments=dict(ear.arguments)
        )
        for exchange, key in ear.bindings:
            await queue.bind(exchange, key)
        await queue.consume(heard, no_ack=True)
    if opened is not None:
        await opened()
    await over.wait()
