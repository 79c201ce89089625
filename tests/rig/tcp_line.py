"""A TCP line to the broker that a test can cut, or make fall silent without its being closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Self

from yarl import URL

CHUNK = 65_536  # bytes
GREETING = b"AMQP\x00\x00\x09\x01"
FRAME_HEAD = Struct(">BHI")  # of AMQP 0-9-1: type, channel, size
CONTENT = (2, 3)  # types of frames: header and body of what a method announced
DELIVER = Struct(">HH").pack(60, 60)  # basic.deliver


class Line:
    """What is done to it is done to the connections of now; only `close` turns later ones away."""

    def __init__(self, broker: URL) -> None:
        self._broker = broker
        self._ends: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def to(cls, amqp_url: str) -> AsyncIterator[Self]:
        line = cls(URL(amqp_url))
        await line._open()
        try:
            yield line
        finally:
            await line.close()

    def cut(self) -> None:
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def silence(self) -> None:
        """Half-open: neither side hears anything, not even that the other has gone."""
        self._passes.clear()
        self._passes = asyncio.Event()
        self._passes.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = str(self._broker.with_host("127.0.0.1").with_port(port))

    async def _connected(self, near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
        far, far_end = await asyncio.open_connection(self._broker.host, self._broker.port)
        self._ends += [near_end, far_end]
        for source, sink in ((near, far_end), (far, near_end)):
            pump = asyncio.create_task(self._carry(source, sink, up=source is near))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        up: bool,  # noqa: ARG002  # for those that tell directions apart
    ) -> None:
        await _pump(source, sink, self._passes)


class DeafLine(Line):
    """It swallows what the broker is told on the channels in `deaf`, and deliveries, if told to."""

    def __init__(self, broker: URL) -> None:
        super().__init__(broker)
        self.deaf: set[int] = set()
        self.withholds = False
        self._withheld: set[int] = set()  # channels in the midst of such a delivery

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool
    ) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if up:
                sink.write(await source.readexactly(len(GREETING)))
            while True:
                head = await source.readexactly(FRAME_HEAD.size)
                kind, channel, size = FRAME_HEAD.unpack(head)
                rest = await source.readexactly(size + 1)
                if up or kind not in CONTENT:
                    swallowed = self._swallows(channel, rest, up=up)
                else:
                    swallowed = channel in self._withheld
                if not swallowed:
                    sink.write(head + rest)
        sink.close()

    def _swallows(self, channel: int, method: bytes, *, up: bool) -> bool:
        if up:
            return channel in self.deaf
        if self.withholds and method.startswith(DELIVER):
            self._withheld.add(channel)
        else:
            self._withheld.discard(channel)
        return channel in self._withheld


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: asyncio.Event
) -> None:
    try:
        while data := await source.read(CHUNK):
            await passes.wait()
            sink.write(data)
            await sink.drain()
        await passes.wait()
    except ConnectionError:
        pass
    finally:
        sink.close()
