"""A client without `harebell.client`, for invalid messages and for events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aio_pika
import orjson
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from tests.rig.polling import WAIT_TIMEOUT

COMMANDS = "harebell.commands"
EVENTS = "harebell.events"


@dataclass(kw_only=True)
class AmqpClient:
    """A channel with a reply queue. `responses` contains a future for each correlation id."""

    tenant: str
    channel: AbstractChannel
    replies: AbstractQueue
    responses: "dict[str, asyncio.Future[Any]]" = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)

    @classmethod
    @asynccontextmanager
    async def open(cls, amqp_url: str, tenant: str) -> AsyncIterator["AmqpClient"]:
        connection = await aio_pika.connect(amqp_url)
        async with connection:
            channel = await connection.channel()
            replies = await channel.declare_queue(exclusive=True)
            client = cls(tenant=tenant, channel=channel, replies=replies)
            await replies.consume(client._on_response, no_ack=True)
            yield client

    async def send(
        self,
        verb: str,
        body: bytes,
        *,
        exchange: str = COMMANDS,
        type_: str | None = None,
        headers: dict[str, Any] | None = None,
    ) -> "asyncio.Future[Any]":
        """Publish a message, in the order of the calls, and return the future of its response."""
        name = f"request-{next(self._numbers)}"
        response = self.responses[name] = asyncio.get_running_loop().create_future()
        message = aio_pika.Message(
            body,
            correlation_id=name,
            reply_to=self.replies.name,
            type=type_,
            headers=headers,
        )
        target_exchange = await self.channel.get_exchange(exchange, ensure=False)
        await target_exchange.publish(message, f"{self.tenant}.{verb}")
        return response

    async def request(
        self,
        verb: str,
        body: bytes,
        *,
        exchange: str = COMMANDS,
        type_: str | None = None,
        headers: dict[str, Any] | None = None,
    ) -> Any:
        sent = self.send(verb, body, exchange=exchange, type_=type_, headers=headers)
        async with asyncio.timeout(WAIT_TIMEOUT):
            return await (await sent)

    async def events(self, pattern: str) -> "asyncio.Queue[dict[str, Any]]":
        """Return a queue that receives each later event of this tenant: `run.succeeded`."""
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def collect(message: AbstractIncomingMessage) -> None:
            for event in orjson.loads(message.body):
                events.put_nowait(event)

        queue = await self.channel.declare_queue(exclusive=True)
        await queue.bind(EVENTS, f"{self.tenant}.{pattern}")
        await queue.consume(collect, no_ack=True)
        return events

    async def _on_response(self, message: AbstractIncomingMessage) -> None:
        self.responses[message.correlation_id or ""].set_result(orjson.loads(message.body))
