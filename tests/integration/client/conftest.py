"""The client's counterpart: an intake that answers as the test says, and a line that can be cut."""

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
Said: TypeAlias = dict[str, object] | list[dict[str, object]] | None


class Intake:
    """Answers each message by `answer(body)`; None is silence."""

    def __init__(self) -> None:
        self.received: list[AbstractIncomingMessage] = []
        self.answer: Callable[[AbstractIncomingMessage], Said] = lambda _: None
        self._exchange: aio_pika.abc.AbstractExchange | None = None
        self._arrived = asyncio.Condition()

    async def has_received(self, number: int) -> None:
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

    async def reply(self, message: AbstractIncomingMessage, said: Said) -> None:
        assert self._exchange is not None
        answer = aio_pika.Message(orjson.dumps(said), correlation_id=message.correlation_id)
        await self._exchange.publish(answer, message.reply_to or "", mandatory=False)

    async def _on_message(self, message: AbstractIncomingMessage) -> None:
        async with self._arrived:
            self.received.append(message)
            self._arrived.notify_all()
        said = self.answer(message)
        if said is not None:
            await self.reply(message, said)


@pytest.fixture
async def intake(amqp_url: str) -> AsyncIterator[Intake]:
    async with await aio_pika.connect(amqp_url) as connection:
        intake = Intake()
        await intake.open(await connection.channel())
        yield intake


@pytest.fixture
async def line(amqp_url: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.open(amqp_url) as line:
        yield line
