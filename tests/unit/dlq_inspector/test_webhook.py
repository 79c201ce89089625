"""The webhook never follows a redirect, because another address may be inside the network."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from tests.fakes.tickets import NINE

from harebell.contract.json_codec import encode_plain
from harebell.dev.ports import LOOPBACK
from harebell.dlq_inspector.model.alerts import DeadLetterSpike
from harebell.dlq_inspector.webhook import Webhook
from harebell.messaging.acknowledge import Delivery

TIMEOUT = 30.0  # seconds


def alert() -> Delivery:
    event = DeadLetterSpike(tenant="acme", dead_letters=30, since=NINE).event(NINE)
    message = SimpleNamespace(body=encode_plain([event]), type=None)
    return Delivery(cast("Any", message), "harebell.alerts")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_webhook_follows_no_redirect_and_posts_again(status: int) -> None:
    requests: asyncio.Queue[str] = asyncio.Queue()

    async def redirect(request: web.Request) -> web.Response:
        requests.put_nowait(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async def accept(request: web.Request) -> web.Response:
        requests.put_nowait(request.path)
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", redirect)
    app.router.add_route("*", "/elsewhere", accept)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        host, port = runner.addresses[0][:2]
        posting = asyncio.create_task(Webhook(f"http://{host}:{port}/hook").post([alert()]))

        async with asyncio.timeout(TIMEOUT):
            paths = [await requests.get() for _ in range(2)]

        assert paths == ["/hook", "/hook"]
        posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)
    finally:
        await runner.cleanup()
