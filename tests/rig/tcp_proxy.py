"""A TCP proxy that makes bad links: a process of its own, told what to do on its standard input.

`python proxy.py '{"a": ["127.0.0.1", 5672]}'` prints the port of every link as one line of JSON.
Each further line names a link and how it is from now on, and is answered with one line:

* `{"link": "a", "cut": true}`                  every connection is reset, and every new one
* `{"link": "a", "up": {"held": true}}`         nothing passes in that direction; nothing is lost
* `{"link": "a", "down": {"delay": 0.5}}`       seconds; `up` is towards the server
* `{"link": "a", "up": {"rate": 1024}}`         bytes a second

What is not named is as it should be.
"""

import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

CHUNK: Final = 65536  # bytes
IN_FLIGHT: Final = 64  # chunks under way in one direction
ROUND: Final = 20  # portions a second that a slow link lets through
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing is a RST


@dataclass
class Flow:
    """One direction of a link."""

    delay: float = 0.0
    rate: float | None = None
    held: bool = False


@dataclass
class Link:
    host: str
    port: int
    cut: bool = False
    up: Flow = field(default_factory=Flow)
    down: Flow = field(default_factory=Flow)
    sockets: set[asyncio.StreamWriter] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def become(self, said: dict[str, Any]) -> None:
        self.cut = bool(said.get("cut"))
        self.up, self.down = Flow(**said.get("up", {})), Flow(**said.get("down", {}))
        self.changed.set()
        self.changed = asyncio.Event()
        if self.cut:
            for writer in list(self.sockets):
                reset(writer)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            reset(writer)
            return
        async with self._kept(writer):
            while self.up.held:  # nobody gets through to the server
                await self.changed.wait()
            with suppress(OSError):
                there = await asyncio.open_connection(self.host, self.port)
                await self._carry((reader, writer), there)

    async def _carry(self, here: Any, there: Any) -> None:
        async with self._kept(there[1]):
            pumps = [
                asyncio.create_task(Pump(self, "up").run(here[0], there[1])),
                asyncio.create_task(Pump(self, "down").run(there[0], here[1])),
            ]
            await asyncio.wait(pumps)

    @asynccontextmanager
    async def _kept(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        self.sockets.add(writer)
        try:
            yield
        finally:
            self.sockets.discard(writer)
            writer.close()


@dataclass
class Pump:
    """Bytes of one connection in one direction, in order and complete, when the link lets them."""

    link: Link
    direction: str
    under_way: "asyncio.Queue[tuple[float, bytes]]" = field(
        default_factory=lambda: asyncio.Queue(IN_FLIGHT)
    )

    @property
    def flow(self) -> Flow:
        return self.link.up if self.direction == "up" else self.link.down

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reading = asyncio.create_task(self._read(reader))
        with suppress(OSError):
            await self._write(writer)
        reading.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        chunk = b"first"
        while chunk:
            try:
                chunk = await reader.read(CHUNK)
            except OSError:
                chunk = b""
            await self.under_way.put((time.monotonic(), chunk))

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        while True:
            came, chunk = await self.under_way.get()
            await asyncio.sleep(came + self.flow.delay - time.monotonic())
            while self.flow.held:
                await self.link.changed.wait()
            if not chunk:
                writer.close()
                return
            for portion in self._portions(chunk):
                writer.write(portion)
                await writer.drain()
                if self.flow.rate is not None:
                    await asyncio.sleep(len(portion) / self.flow.rate)

    def _portions(self, chunk: bytes) -> Iterator[bytes]:
        """Small enough that a slow link gets quicker soon after it may."""
        rate = self.flow.rate
        size = CHUNK if rate is None else max(1, int(rate / ROUND))
        return (chunk[at : at + size] for at in range(0, len(chunk), size))


def reset(writer: asyncio.StreamWriter) -> None:
    end = writer.get_extra_info("socket")
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def serve(places: dict[str, tuple[str, int]]) -> None:
    links = {name: Link(*place) for name, place in places.items()}
    servers = {
        name: await asyncio.start_server(link.accept, "127.0.0.1", 0)
        for name, link in links.items()
    }
    say({name: server.sockets[0].getsockname()[1] for name, server in servers.items()})
    told = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(told)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await told.readline():
        order = json.loads(line)
        links[order["link"]].become(order)
        say({"link": order["link"]})


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
