"""A TCP proxy that can cut, delay, slow down or silence the connections between two programs.

A test opens a `TcpProxy` in its own process, or starts this module as a process:
`python -m tests.rig.tcp_proxy '{"a": ["127.0.0.1", 5672]}'` prints the ports as a line of JSON.
Each further line of the input sets the condition of one proxy, and the process answers with a line:

* `{"link": "a", "cut": true}`                resets each connection and each new connection
* `{"link": "a", "up": {"held": true}}`       holds the data of one direction without a loss
* `{"link": "a", "down": {"delay": 0.5}}`     delays the data by seconds
* `{"link": "a", "up": {"rate": 1024}}`       limits the bytes in a second
* `{"link": "a", "drops": ["orders"]}`        confirms the messages for an exchange and drops them

The direction `up` leads to the server.
A condition that the line omits returns to normal.
Only a proxy with a third part, `["127.0.0.1", 5672, "amqp"]`, reads AMQP and can drop messages.
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

from tests.rig.listener import HOST, Listener

CHUNK: Final = 65_536  # bytes
MAX_QUEUED_CHUNKS: Final = 64  # in one direction of a connection
PORTIONS_PER_SECOND: Final = 20  # of a direction with a rate
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the close sends a RST

GREETING: Final = b"AMQP\x00\x00\x09\x01"
FRAME_HEAD: Final = struct.Struct(">BHI")  # AMQP 0-9-1: type, channel, size
CONTENT: Final = frozenset({2, 3})  # the frame types of the header and the body of a message
METHOD: Final = 1  # the frame type of a method
HEADER: Final = 2  # the frame type of the properties of a message
FRAME_END: Final = b"\xce"
DELIVER: Final = struct.pack(">HH", 60, 60)  # basic.deliver
PUBLISH: Final = struct.pack(">HH", 60, 40)  # basic.publish
ACK: Final = struct.pack(">HH", 60, 80)  # basic.ack
NACK: Final = struct.pack(">HH", 60, 120)  # basic.nack
SELECT: Final = struct.pack(">HH", 85, 10)  # confirm.select
CHANNEL_OPEN: Final = struct.pack(">HH", 20, 10)
TAG: Final = struct.Struct(">QB")  # the delivery tag and the flags of a confirm
EXCHANGE_AT: Final = 6  # the offset of the exchange in basic.publish
BODY_SIZE: Final = struct.Struct(">Q")
BODY_SIZE_AT: Final = 4  # the offset in the frame of the properties


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
        self.dropped_exchanges: frozenset[str] = frozenset()
        self._is_cut = False
        self._connections: set[ProxiedConnection] = set()
        self._listener = Listener(self._serve)

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
        return await self._listener.start()

    async def close(self) -> None:
        """Refuse new connections and reset the present ones."""
        self.cut()
        await self._listener.close()

    def cut(self) -> None:
        """Reset the present connections."""
        for connection in self._connections:
            connection.reset()

    def silence(self) -> None:
        """Make the present connections half-open: no data and no end passes any more."""
        for connection in self._connections:
            connection.is_silent = True
        self._notify()

    def set_condition(self, condition: dict[str, Any]) -> None:
        self._is_cut = bool(condition.get("cut"))
        self.dropped_exchanges = frozenset(condition.get("drops", ()))
        self.up = Flow(**condition.get("up", {}))
        self.down = Flow(**condition.get("down", {}))
        self._notify()
        if self._is_cut:
            self.cut()

    async def chunks(
        self,
        reader: asyncio.StreamReader,
        connection: "ProxiedConnection",  # noqa: ARG002  # a subclass uses it
        *,
        up: bool,  # noqa: ARG002  # as above
    ) -> AsyncIterator[bytes]:
        """Yield the data of one direction until its end."""
        while chunk := await reader.read(CHUNK):
            yield chunk

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ProxiedConnection(self)
        self._connections.add(connection)
        try:
            with suppress(OSError):
                await connection.run(reader, writer, is_refused=self._is_cut)
        finally:
            self._connections.remove(connection)


class ProxiedConnection:
    """One connection through a proxy."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self.is_silent = False
        self.channels: dict[int, ConfirmedChannel] = {}  # of a proxy that drops messages
        self.to_client: Pump | None = None
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
            self.to_client = down
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
            async for chunk in self._proxy.chunks(reader, self._connection, up=self._is_up):
                await self._queue.put((time.monotonic(), chunk))
        await self._queue.put((time.monotonic(), b""))

    async def insert(self, chunk: bytes) -> None:
        """Send data of the proxy itself between two chunks."""
        await self._queue.put((time.monotonic(), chunk))

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

    async def chunks(
        self,
        reader: asyncio.StreamReader,
        connection: ProxiedConnection,  # noqa: ARG002  # another subclass uses it
        *,
        up: bool,
    ) -> AsyncIterator[bytes]:
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


class ConfirmedChannel:
    """The publishes of one channel in confirm mode.

    The client counts each publish, and the broker counts those that the proxy forwards.
    """

    def __init__(self) -> None:
        self.is_confirming = False
        self.published = 0
        self.forwarded = 0
        self.is_dropping = False  # in the middle of a dropped message
        self.missing = 0  # bytes of the body of that message
        self._tags: dict[int, int] = {}  # the tag of the client by that of the broker

    def forward(self) -> None:
        if self.is_confirming:
            self.published += 1
            self.forwarded += 1
            self._tags[self.forwarded] = self.published

    def client_tags(self, tag: int, *, multiple: bool) -> list[int]:
        """Return and forget the tags that a confirm of the broker ends."""
        ended = [each for each in self._tags if each <= tag] if multiple else [tag]
        return [self._tags.pop(each) for each in ended if each in self._tags]


class ConfirmingProxy(TcpProxy):
    """A proxy that confirms the messages for `dropped_exchanges` and drops them.

    The broker then numbers its confirms differently from the client, so the proxy translates them.
    """

    async def chunks(
        self, reader: asyncio.StreamReader, connection: ProxiedConnection, *, up: bool
    ) -> AsyncIterator[bytes]:
        if up:
            yield await reader.readexactly(len(GREETING))
        while True:
            head = await reader.readexactly(FRAME_HEAD.size)
            kind, number, size = FRAME_HEAD.unpack(head)
            rest = await reader.readexactly(size + 1)
            channel = connection.channels.setdefault(number, ConfirmedChannel())
            if not up:
                yield self._translated(number, channel, head + rest)
            elif not self._drops(channel, kind, rest):
                yield head + rest
            elif channel.missing <= 0 and kind in CONTENT:  # the message is complete
                channel.published += 1
                assert connection.to_client is not None
                await connection.to_client.insert(confirm(number, ACK, channel.published))

    def _drops(self, channel: ConfirmedChannel, kind: int, payload: bytes) -> bool:
        """Return whether a frame of the client belongs to a dropped message."""
        method = payload[: len(PUBLISH)]
        if kind == METHOD:
            channel.is_dropping = False
            if method == SELECT:
                channel.is_confirming = True
            elif method == CHANNEL_OPEN:
                channel.__init__()  # type: ignore[misc]  # the number is used again
            elif method == PUBLISH:
                channel.is_dropping = channel.is_confirming and self._is_dropped(payload)
                if not channel.is_dropping:
                    channel.forward()
        elif channel.is_dropping and kind == HEADER:
            (channel.missing,) = BODY_SIZE.unpack_from(payload, BODY_SIZE_AT)
        elif channel.is_dropping:
            channel.missing -= len(payload) - 1  # without the end mark of the frame
        return channel.is_dropping

    def _is_dropped(self, payload: bytes) -> bool:
        length = payload[EXCHANGE_AT]
        exchange = payload[EXCHANGE_AT + 1 : EXCHANGE_AT + 1 + length].decode()
        return exchange in self.dropped_exchanges

    def _translated(self, number: int, channel: ConfirmedChannel, frame: bytes) -> bytes:
        method = frame[FRAME_HEAD.size : FRAME_HEAD.size + len(ACK)]
        if frame[0] != METHOD or method not in (ACK, NACK) or not channel.is_confirming:
            return frame
        tag, multiple = TAG.unpack_from(frame, FRAME_HEAD.size + len(ACK))
        tags = channel.client_tags(tag, multiple=bool(multiple & 1))
        return b"".join(confirm(number, method, each) for each in tags)


def confirm(channel: int, method: bytes, tag: int) -> bytes:
    """Return the frame of a confirm or of a rejection of one message."""
    payload = method + TAG.pack(tag, 0)
    return FRAME_HEAD.pack(METHOD, channel, len(payload)) + payload + FRAME_END


async def serve(servers: dict[str, list[Any]]) -> None:
    """Run one proxy for each server, and read their conditions from the standard input."""
    proxies = {
        name: (ConfirmingProxy if protocol else TcpProxy)(host, port)
        for name, (host, port, *protocol) in servers.items()
    }
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
