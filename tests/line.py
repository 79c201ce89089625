"""A TCP line to the broker that a test can cut, or make fall silent without its being closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from yarl import URL

CHUNK = 65_536  # bytes


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
            pump = asyncio.create_task(_pump(source, sink, self._passes))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


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
