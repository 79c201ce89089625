"""A chat's incoming webhook: what is posted to it, and how it answers."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from harebell.dev.ports import LOOPBACK


@dataclass
class Chat:
    """`statuses`: of the next answers; after them, all is well."""

    url: str
    statuses: list[int] = field(default_factory=list)
    posted: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)

    async def take(self, request: web.Request) -> web.Response:
        self.posted.put_nowait(await request.json())
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)


@asynccontextmanager
async def chat(statuses: Iterable[int] = ()) -> AsyncIterator[Chat]:
    opened = Chat("", [*statuses])
    app = web.Application()
    app.router.add_post("/hooks/secret", opened.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        opened.url = f"http://{host}:{port}/hooks/secret"
        yield opened
    finally:
        await runner.cleanup()
