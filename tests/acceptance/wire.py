"""AMQP by hand: what the client would never send, and what Harebell tells everyone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import aio_pika
import orjson
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from tests.acceptance.stack import PATIENCE

COMMANDS = "harebell.commands"
EVENTS = "harebell.events"


@dataclass
class Wire:
    """`answers` get what comes back to this channel's questions, by correlation id."""

    tenant: str
    channel: AbstractChannel
    replies: AbstractQueue
    answers: "dict[str, asyncio.Future[Any]]"
    _numbers: "count[int]"

    @classmethod
    @asynccontextmanager
    async def open(cls, amqp_url: str, tenant: str) -> AsyncIterator["Wire"]:
        connection = await aio_pika.connect(amqp_url)
        async with connection:
            channel = await connection.channel()
            replies = await channel.declare_queue(exclusive=True)
            wire = cls(tenant, channel, replies, {}, count())
            await replies.consume(wire._on_answer, no_ack=True)
            yield wire

    async def send(
        self, verb: str, body: bytes, *, exchange: str = COMMANDS, type_: str | None = None
    ) -> "asyncio.Future[Any]":
        """Published, in the order of calls; the answer comes later."""
        name = f"by-hand-{next(self._numbers)}"
        answer = self.answers[name] = asyncio.get_running_loop().create_future()
        message = aio_pika.Message(
            body, correlation_id=name, reply_to=self.replies.name, type=type_
        )
        there = await self.channel.get_exchange(exchange, ensure=False)
        await there.publish(message, f"{self.tenant}.{verb}")
        return answer

    async def ask(
        self, verb: str, body: bytes, *, exchange: str = COMMANDS, type_: str | None = None
    ) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await (await self.send(verb, body, exchange=exchange, type_=type_))

    async def events(self, pattern: str) -> "asyncio.Queue[dict[str, Any]]":
        """This tenant's from now on, one by one: `run.succeeded`."""
        facts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def keep(message: AbstractIncomingMessage) -> None:
            for fact in orjson.loads(message.body):
                facts.put_nowait(fact)

        queue = await self.channel.declare_queue(exclusive=True)
        await queue.bind(EVENTS, f"{self.tenant}.{pattern}")
        await queue.consume(keep, no_ack=True)
        return facts

    async def _on_answer(self, message: AbstractIncomingMessage) -> None:
        self.answers[message.correlation_id or ""].set_result(orjson.loads(message.body))
