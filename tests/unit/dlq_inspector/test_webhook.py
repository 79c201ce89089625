"""The webhook: no redirect, because another address may be inside the network, and its pauses."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from harebell.dev.ports import LOOPBACK
from harebell.dlq_inspector.webhook import AlertSigner, Webhook, retry_pause
from harebell.domain.webhook_signature import Verified, hmac_key, hmac_text, verify
from harebell.runtime.clock import Clock
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.signing_keys import SigningKeys

TIMEOUT = 30.0  # seconds
NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)


async def signer(*names: str, directory: Path | None = None) -> AlertSigner:
    async def read() -> datetime:
        return NOW

    clock = Clock(read)
    await clock.refresh()
    return AlertSigner(keys=SigningKeys(SecretFiles(directory)), names=names, clock=clock)


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
        webhook = Webhook(f"http://{host}:{port}/hook", cast("Any", None), await signer())

        async with asyncio.timeout(TIMEOUT):
            failure = await webhook.post(b"{}", alert_id="1")

        assert failure == f"status {status}"
        assert [requests.get_nowait() for _ in range(requests.qsize())] == ["/hook"]
    finally:
        await runner.cleanup()


@pytest.mark.requirement("S117")
def test_pause_of_an_alert_grows_up_to_one_minute() -> None:
    pauses = [retry_pause(tries).total_seconds() for tries in (1, 2, 3, 4, 5, 1_000)]

    assert pauses == [1, 4, 15, 60, 60, 60]


async def test_alert_is_signed_with_the_keys_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "harebell").mkdir()
    (tmp_path / "harebell" / "alerts").write_text(hmac_text(bytes(32)))
    made = await signer("alerts", directory=tmp_path)

    headers = made.headers("dead_letters/dlq.spike", b"{}")

    result = verify(headers, b"{}", keys=[hmac_key(bytes(32))], now=NOW)
    assert isinstance(result, Verified)
    assert (result.message_id, result.sent_at) == ("dead_letters/dlq%2Espike", NOW)
    assert (await signer()).headers("1", b"{}") == {}


async def test_alert_without_its_key_is_not_posted(tmp_path: Path) -> None:
    webhook = Webhook(
        f"http://{LOOPBACK}:1/", cast("Any", None), await signer("alerts", directory=tmp_path)
    )

    failure = await webhook.post(b"{}", alert_id="1")

    assert failure is not None
    assert failure.startswith("The secret 'alerts' is missing")
