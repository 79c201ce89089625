"""The counterpart of the client: an intake with the responses of the test, and a TCP proxy."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.rig.tcp_proxy import TcpProxy

from harebell.contract.amqp_names import COMMANDS, QUERIES

TENANT = "client-tests"
ResponseBody: TypeAlias = dict[str, object] | list[dict[str, object]] | None


class FakeIntake:
    """A consumer that sends the response that `respond` returns, or none for None."""

    def __init__(self) -> None:
        self.received: list[AbstractIncomingMessage] = []
        self.respond: Callable[[AbstractIncomingMessage], ResponseBody] = lambda _: None
        self._exchange: aio_pika.abc.AbstractExchange | None = None
        self._arrived = asyncio.Condition()

    async def wait_for(self, number: int) -> None:
        """Wait until the given number of messages has arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= number)

    async def open(self, channel: aio_pika.abc.AbstractChannel) -> None:
        self._exchange = channel.default_exchange
        queue = await channel.declare_queue(exclusive=True)
        for name in (COMMANDS, QUERIES):
            exchange = await channel.declare_exchange(
                name, aio_pika.ExchangeType.TOPIC, durable=True
            )
            await queue.bind(exchange, f"{TENANT}.#")
        await queue.consume(self._on_message, no_ack=True)

    async def reply(self, message: AbstractIncomingMessage, body: ResponseBody) -> None:
        assert self._exchange is not None
        reply = aio_pika.Message(orjson.dumps(body), correlation_id=message.correlation_id)
        await self._exchange.publish(reply, message.reply_to or "", mandatory=False)

    async def _on_message(self, message: AbstractIncomingMessage) -> None:
        async with self._arrived:
            self.received.append(message)
            self._arrived.notify_all()
        body = self.respond(message)
        if body is not None:
            await self.reply(message, body)


@pytest.fixture
async def intake(amqp_url: str) -> AsyncIterator[FakeIntake]:
    async with await aio_pika.connect(amqp_url) as connection:
        intake = FakeIntake()
        await intake.open(await connection.channel())
        yield intake


@pytest.fixture
async def proxy(amqp_url: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.open(amqp_url) as proxy:
        yield proxy
