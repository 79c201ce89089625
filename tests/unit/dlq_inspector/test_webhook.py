"""The webhook: no redirect, because another address may be inside the network, and its pauses."""

import asyncio
from typing import Any, cast

import pytest
from aiohttp import web

from harebell.dev.ports import LOOPBACK
from harebell.dlq_inspector.webhook import Webhook, retry_pause

TIMEOUT = 30.0  # seconds


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_webhook_follows_no_redirect_and_reports_a_failure(status: int) -> None:
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
        webhook = Webhook(f"http://{host}:{port}/hook", pool=cast("Any", None))

        async with asyncio.timeout(TIMEOUT):
            failure = await webhook.post(b"{}")

        assert failure == f"status {status}"
        assert [requests.get_nowait() for _ in range(requests.qsize())] == ["/hook"]
    finally:
        await runner.cleanup()


@pytest.mark.requirement("S117")
def test_pause_of_an_alert_grows_up_to_one_minute() -> None:
    pauses = [retry_pause(tries).total_seconds() for tries in (1, 2, 3, 4, 5, 1_000)]

    assert pauses == [1, 4, 15, 60, 60, 60]
