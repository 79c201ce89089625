"""Servers for tests of HTTP targets, and a resolver with a table of names."""

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

from harebell.domain.tenant_policy import TenantPolicies

UNRESTRICTED = TenantPolicies.unrestricted()
SECONDS = 10.0  # of an attempt
LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
Conversation: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Respond: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request that a server has received."""

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass
class HttpServer:
    """An HTTP server that keeps its requests and responds with `respond`."""

    url: str
    respond: Respond
    received: list[Received] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.received.append(
            Received(
                method=request.method,
                path=request.path_qs,
                headers=CIMultiDict(request.headers),
                body=body,
            )
        )
        return await self.respond(request)


async def empty_response(_: web.Request) -> web.StreamResponse:
    return web.Response()


@dataclass(kw_only=True)
class RawServer:
    """A TCP server that handles each connection with `conversation` and counts the calls."""

    url: str = ""
    calls: int = 0
    conversation: Conversation | None = None

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        assert self.conversation is not None
        with suppress(ConnectionError):
            try:
                await self.conversation(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()


class TableResolver(AbstractResolver):
    """A resolver with a table of names, which counts its calls."""

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        self.addresses = addresses
        self.calls = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.calls += 1
        if host not in self.addresses:
            raise OSError(None, "The name must be in the table.")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses[host]
        ]

    async def close(self) -> None:
        pass
