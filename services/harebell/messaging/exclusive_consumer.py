"""Consumers of exclusive queues, which carry hints to one instance and end with its connection."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from pamqp.common import FieldValue

from harebell.connection.amqp import BROKER_REPLY_TIMEOUT, close, translate_amqp_errors
from harebell.contract.errors import InvalidInput, Transient
from harebell.messaging.foreign_messages import refuse_foreign
from harebell.runtime.clock import monotonic
from harebell.runtime.retries import MAX_BACKOFF, backoff_delay

MessageHandler: TypeAlias = Callable[[AbstractIncomingMessage], Awaitable[None]]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ExclusiveQueue:
    """A queue that the broker deletes with its connection.

    Each binding is an exchange and a routing key.
    """

    queue: str
    bindings: Sequence[tuple[str, str]]
    arguments: Mapping[str, FieldValue] = field(default_factory=dict)


async def consume_exclusively(
    connect: Callable[[], Awaitable[AbstractConnection]],
    queue: ExclusiveQueue,
    handle: MessageHandler,
    *,
    accepts: Callable[[AbstractIncomingMessage], bool] = lambda _: True,
    on_open: Callable[[], Awaitable[None]] | None = None,
    on_close: Callable[[], None] = lambda: None,
) -> None:
    """Consume the queue without acknowledgement, and reconnect until the task is cancelled.

    A message that the handler rejects or cannot process now is logged and lost, and so is one
    that `accepts` refuses.
    """
    tries = 0
    while True:
        started_at = monotonic()
        try:
            with translate_amqp_errors("The session has ended"):
                connection = await connect()
                try:
                    lost = await _start_consuming(connection, queue, handle, accepts=accepts)
                    if on_open is not None:
                        await on_open()
                    await lost.wait()
                finally:
                    on_close()
                    await close(connection)
        except Transient as error:
            log.warning("exclusive consumer lost", queue=queue.queue, error=error.reason)
        tries = 1 if monotonic() - started_at > MAX_BACKOFF else tries + 1
        await asyncio.sleep(backoff_delay(tries))


async def _start_consuming(
    connection: AbstractConnection,
    exclusive: ExclusiveQueue,
    handle: MessageHandler,
    *,
    accepts: Callable[[AbstractIncomingMessage], bool],
) -> asyncio.Event:
    """Declare, bind and consume the queue. Return an event that the end of the session sets."""
    lost = asyncio.Event()
    connection.close_callbacks.add(lambda *_: lost.set())

    async def handle_hint(message: AbstractIncomingMessage) -> None:
        if not accepts(message):
            refuse_foreign(exclusive.queue, message)
            return
        try:
            await handle(message)
        except (InvalidInput, Transient) as error:
            log.warning("hint not processed", error=error.code, reason=error.reason)

    async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
        channel = await connection.channel(publisher_confirms=False)
        channel.close_callbacks.add(lambda *_: lost.set())
        queue = await channel.declare_queue(
            exclusive.queue, exclusive=True, arguments=dict(exclusive.arguments)
        )
        for exchange, key in exclusive.bindings:
            await queue.bind(exchange, key)
        await queue.consume(handle_hint, no_ack=True)
    return lost
