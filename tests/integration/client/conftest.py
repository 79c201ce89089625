"""The client's counterpart: an intake that answers as the test says, and a line that can be cut."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractIncomingMessage
from yarl import URL

from harebell.contract.names import COMMANDS, QUERIES

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


class Line:
    """A TCP line to the broker that can be cut, and stay cut."""

    def __init__(self, broker: URL) -> None:
        self._broker = broker
        self._ends: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = str(self._broker.with_host("127.0.0.1").with_port(port))

    def cut(self) -> None:
        """New connections are still taken."""
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connected(self, near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
        far, far_end = await asyncio.open_connection(self._broker.host, self._broker.port)
        self._ends += [near_end, far_end]
        for source, sink in ((near, far_end), (far, near_end)):
            pump = asyncio.create_task(_pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


@pytest.fixture
async def line(amqp_url: str) -> AsyncIterator[Line]:
    line = Line(URL(amqp_url))
    await line.open()
    yield line
    await line.close()
