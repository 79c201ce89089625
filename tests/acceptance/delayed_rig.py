"""A publisher and a consumer of delayed messages, as services without Harebell code have them."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pamqp.common import FieldTable
from tests.rig.polling import until


@dataclass(kw_only=True)
class DelayedRig:
    """A queue that is bound to the due exchange, with its received messages and their times."""

    channel: AbstractChannel
    exchange: str
    received: list[tuple[float, AbstractIncomingMessage]] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, exchange: str, *, queue: str | None = None
    ) -> AsyncIterator["DelayedRig"]:
        """Consume the due exchange, with a durable queue if it has a name."""
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            rig = cls(channel=channel, exchange=exchange)
            arguments: FieldTable | None = {"x-queue-type": "quorum"} if queue else None
            inbox = await channel.declare_queue(
                queue, exclusive=queue is None, durable=queue is not None, arguments=arguments
            )
            await inbox.bind(f"{exchange}.due", "#")

            async def keep(message: AbstractIncomingMessage) -> None:
                rig.received.append((time.time(), message))
                await message.ack()

            await inbox.consume(keep)
            yield rig

    async def publish(
        self, body: bytes, delay: Any = None, *, key: str = "created", **properties: Any
    ) -> float:
        """Publish a message with a confirm, and return the time before the publish."""
        exchange = await self.channel.get_exchange(self.exchange, ensure=False)
        headers = dict(properties.pop("headers", {}))
        if delay is not None:
            headers["x-delay"] = delay
        # The client library adds a message id, which it does not do for an empty text.
        message = aio_pika.Message(body, headers=headers, **properties)
        began = time.time()
        await exchange.publish(message, key)
        return began

    async def until_received(
        self, number: int, *, within: float = 30.0
    ) -> list[tuple[float, AbstractIncomingMessage]]:
        async def enough() -> bool:
            return len(self.received) >= number

        await until(enough, within=within, what=f"{number} messages")
        return self.received

    async def until_bodies(self, expected: set[bytes], *, within: float = 30.0) -> None:
        """Wait until a message with each of the bodies has arrived."""

        async def complete() -> bool:
            return expected <= set(self.bodies())

        await until(complete, within=within, what=f"messages with {len(expected)} bodies")

    def bodies(self) -> list[bytes]:
        return [message.body for _, message in self.received]


def whole_second(text: str) -> datetime:
    """Return the time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
