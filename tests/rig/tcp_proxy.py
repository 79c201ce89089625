"""A TCP proxy that can cut, delay, slow down or silence the connections between two programs.

A test opens a `TcpProxy` in its own process, or starts this module as a process:
`python tcp_proxy.py '{"a": ["127.0.0.1", 5672]}'` prints the port of each proxy as a line of JSON.
Each further line of the input sets the condition of one proxy, and the process answers with a line:

* `{"link": "a", "cut": true}`                resets each connection and each new connection
* `{"link": "a", "up": {"held": true}}`       holds the data of one direction without a loss
* `{"link": "a", "down": {"delay": 0.5}}`     delays the data by seconds
* `{"link": "a", "up": {"rate": 1024}}`       limits the bytes in a second

The direction `up` leads to the server.
A condition that the line omits returns to normal.
"""

import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536  # bytes
MAX_QUEUED_CHUNKS: Final = 64  # in one direction of a connection
PORTIONS_PER_SECOND: Final = 20  # of a direction with a rate
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the close sends a RST

GREETING: Final = b"AMQP\x00\x00\x09\x01"
FRAME_HEAD: Final = struct.Struct(">BHI")  # AMQP 0-9-1: type, channel, size
CONTENT: Final = frozenset({2, 3})  # the frame types of the header and the body of a message
DELIVER: Final = struct.pack(">HH", 60, 60)  # basic.deliver


@dataclass(frozen=True)
class Flow:
    """The condition of one direction of a proxy."""

    delay: float = 0.0  # seconds
    rate: float | None = None  # bytes in a second
    held: bool = False


class TcpProxy:
    """A proxy for one server."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.url = ""
        self.up = Flow()
        self.down = Flow()
        self.changed = asyncio.Event()
        self._is_cut = False
        self._connections: dict[asyncio.Task[None], ProxiedConnection] = {}
        self._server: asyncio.Server | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Self]:
        """Open a proxy for the server of the URL. `url` of the proxy leads through it."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        proxy = cls(parts.hostname, parts.port)
        port = await proxy.listen()
        login, at, _ = parts.netloc.rpartition("@")
        proxy.url = parts._replace(netloc=f"{login}{at}{HOST}:{port}").geturl()
        try:
            yield proxy
        finally:
            await proxy.close()

    async def listen(self) -> int:
        """Start to accept connections and return the port."""
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Refuse new connections and reset the present ones."""
        assert self._server is not None
        self._server.close()
        self.cut()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset the present connections."""
        for connection in self._connections.values():
            connection.reset()

    def silence(self) -> None:
        """Make the present connections half-open: no data and no end passes any more."""
        for connection in self._connections.values():
            connection.is_silent = True
        self._notify()

    def set_condition(self, condition: dict[str, Any]) -> None:
        self._is_cut = bool(condition.get("cut"))
        self.up = Flow(**condition.get("up", {}))
        self.down = Flow(**condition.get("down", {}))
        self._notify()
        if self._is_cut:
            self.cut()

    async def chunks(self, reader: asyncio.StreamReader, *, up: bool) -> AsyncIterator[bytes]:  # noqa: ARG002  # a subclass uses it
        """Yield the data of one direction until its end."""
        while chunk := await reader.read(CHUNK):
            yield chunk

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = self._connections[task] = ProxiedConnection(self)
        try:
            with suppress(OSError):
                await connection.run(reader, writer, is_refused=self._is_cut)
        finally:
            del self._connections[task]


class ProxiedConnection:
    """One connection through a proxy."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self.is_silent = False
        self._writers: list[asyncio.StreamWriter] = []

    async def run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_refused: bool
    ) -> None:
        self._writers.append(writer)
        if is_refused:
            self.reset()
            return
        pumps: list[asyncio.Task[None]] = []
        try:
            while self.proxy.up.held:  # the connection does not reach the server
                await self.proxy.changed.wait()
            server = await asyncio.open_connection(self.proxy.host, self.proxy.port)
            self._writers.append(server[1])
            up, down = Pump(self, is_up=True), Pump(self, is_up=False)
            pumps.append(asyncio.create_task(up.run(reader, server[1])))
            pumps.append(asyncio.create_task(down.run(server[0], writer)))
            await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in self._writers:
                each.close()

    def reset(self) -> None:
        for writer in self._writers:
            with suppress(OSError):
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


class Pump:
    """The data of one direction of a connection, in order and complete."""

    def __init__(self, connection: ProxiedConnection, *, is_up: bool) -> None:
        self._connection = connection
        self._proxy = connection.proxy
        self._is_up = is_up
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_QUEUED_CHUNKS)

    @property
    def flow(self) -> Flow:
        return self._proxy.up if self._is_up else self._proxy.down

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reading = asyncio.create_task(self._read(reader))
        try:
            with suppress(OSError):
                await self._write(writer)
        finally:
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            async for chunk in self._proxy.chunks(reader, up=self._is_up):
                await self._queue.put((time.monotonic(), chunk))
        await self._queue.put((time.monotonic(), b""))

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        while True:
            read_at, chunk = await self._queue.get()
            await asyncio.sleep(read_at + self.flow.delay - time.monotonic())
            while self.flow.held or self._connection.is_silent:
                await self._proxy.changed.wait()
            if not chunk:
                writer.close()
                return
            for portion in self._portions(chunk):
                writer.write(portion)
                await writer.drain()
                if self.flow.rate is not None:
                    await asyncio.sleep(len(portion) / self.flow.rate)

    def _portions(self, chunk: bytes) -> Iterator[bytes]:
        """Yield small portions, so that a higher rate takes effect soon."""
        rate = self.flow.rate
        size = CHUNK if rate is None else max(1, int(rate / PORTIONS_PER_SECOND))
        return (chunk[start : start + size] for start in range(0, len(chunk), size))


class AmqpProxy(TcpProxy):
    """A proxy that drops AMQP frames.

    The proxy drops the methods that the client sends on `ignored_channels`.
    With `drops_deliveries`, it also drops the messages that the broker delivers.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.ignored_channels: set[int] = set()
        self.drops_deliveries = False
        self._dropped: set[int] = set()  # the channels in the middle of a dropped delivery

    async def chunks(self, reader: asyncio.StreamReader, *, up: bool) -> AsyncIterator[bytes]:
        if up:
            yield await reader.readexactly(len(GREETING))
        while True:
            head = await reader.readexactly(FRAME_HEAD.size)
            kind, channel, size = FRAME_HEAD.unpack(head)
            rest = await reader.readexactly(size + 1)
            if up:
                is_dropped = channel in self.ignored_channels
            else:
                is_dropped = self._is_dropped_delivery(kind, channel, rest)
            if not is_dropped:
                yield head + rest

    def _is_dropped_delivery(self, kind: int, channel: int, payload: bytes) -> bool:
        if kind not in CONTENT:
            if self.drops_deliveries and payload.startswith(DELIVER):
                self._dropped.add(channel)
            else:
                self._dropped.discard(channel)
        return channel in self._dropped


async def serve(servers: dict[str, tuple[str, int]]) -> None:
    """Run one proxy for each server, and read their conditions from the standard input."""
    proxies = {name: TcpProxy(*address) for name, address in servers.items()}
    print_line({name: await proxy.listen() for name, proxy in proxies.items()})
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await lines.readline():
        condition = json.loads(line)
        proxies[condition["link"]].set_condition(condition)
        print_line({"link": condition["link"]})


def print_line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
