"""An incoming webhook of a chat that records each post and returns given statuses."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from harebell.dev.ports import LOOPBACK


@dataclass
class WebhookServer:
    """The server. `statuses` are those of the next responses, and later responses have 200."""

    url: str
    statuses: list[int] = field(default_factory=list)
    posted: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)

    async def handle(self, request: web.Request) -> web.Response:
        self.posted.put_nowait(await request.json())
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)


@asynccontextmanager
async def webhook_server(
    statuses: Iterable[int] = (), *, url: str | None = None
) -> AsyncIterator[WebhookServer]:
    """Yield a server on a free port, or on the port of `url`."""
    server = WebhookServer("", [*statuses])
    app = web.Application()
    app.router.add_post("/hooks/secret", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0 if url is None else urlsplit(url).port)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}/hooks/secret"
        yield server
    finally:
        await runner.cleanup()
