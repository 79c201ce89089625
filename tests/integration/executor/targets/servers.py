"""An HTTP server that answers as the test says, one that speaks in bytes, and names of our own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TypeAlias

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass
class Server:
    """Keeps what it is asked; `answer` says what it says."""

    url: str
    answer: Answer
    received: list[Received] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = CIMultiDict(request.headers)
        self.received.append(Received(request.method, request.path_qs, headers, body))
        return await self.answer(request)


async def nothing(_: web.Request) -> web.StreamResponse:
    return web.Response()


@dataclass
class RawServer:
    """Each connection is handled by `talk`; `calls` counts them."""

    url: str = ""
    calls: int = 0
    talk: Talk | None = None

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        assert self.talk is not None
        with suppress(ConnectionError):
            await self.talk(reader, writer)
            writer.close()
            await writer.wait_closed()


class Names(AbstractResolver):
    """Resolves from a table, and counts how often it was asked."""

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        self.addresses = addresses
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked += 1
        if host not in self.addresses:
            raise OSError(None, "no such name")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses[host]
        ]

    async def close(self) -> None:
        pass
