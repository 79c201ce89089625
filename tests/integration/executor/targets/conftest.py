"""Servers to call, and the targets that call them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.integration.executor.targets.servers import LOOPBACK, RawServer, Server, nothing

from harebell.executor.targets.http import HttpTargets


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    opened = Server("", nothing)
    app.router.add_route("*", "/{rest:.*}", opened.handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    opened.url = f"http://127.0.0.1:{port}"
    yield opened
    await runner.cleanup()


@pytest.fixture
async def raw_server() -> AsyncIterator[RawServer]:
    opened = RawServer()
    listening = await asyncio.start_server(opened.handle, "127.0.0.1", 0)
    opened.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield opened
        listening.close()


@pytest.fixture
async def http() -> AsyncIterator[HttpTargets]:
    """Loopback is allowed, as in the local stack."""
    async with HttpTargets(LOOPBACK) as targets:
        yield targets
