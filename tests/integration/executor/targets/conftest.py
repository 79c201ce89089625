"""Fixtures for tests of targets: servers to call, and the HTTP client."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.integration.executor.targets.servers import (
    LOOPBACK,
    UNRESTRICTED,
    HttpServer,
    RawServer,
    empty_response,
)
from tests.rig.listener import listening

from harebell.domain.url_policy import Egress
from harebell.executor.targets.http import HttpTargets


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    opened = HttpServer("", empty_response)
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
    async with listening(opened.handle) as port:
        opened.url = f"http://127.0.0.1:{port}"
        yield opened


@pytest.fixture
async def http() -> AsyncIterator[HttpTargets]:
    """Open an HTTP client that may reach the loopback network, as in the local stack."""
    async with HttpTargets(Egress(LOOPBACK), UNRESTRICTED) as targets:
        yield targets
