"""`harebell audit --watch`: a sign of life for as long as all is well, from the tables alone."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.acceptance.stack import WAIT_TIMEOUT, Stack, until
from tests.acceptance.test_audit import audit_command, environment
from tests.acceptance.amqp_client import AmqpClient

from harebell.client.connection import connect
from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import SYSTEM

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

OVERDUE = """
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_until,
                            dispatched, open_runs)
VALUES (gen_random_uuid(), 1, 'active', now() - interval '5 min', now(), now(), 0, '{}')
"""


@contextmanager
def pings() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Somebody who waits for a sign of life: the address, and the paths and texts that came."""
    came: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            came.append((self.path, self.rfile.read(length).decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ping", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.requirement("ASK-11")
async def test_the_watch_pings_while_all_is_well_and_fails_when_the_ticker_is_silent(
    own_stack: Stack,
) -> None:
    """No service runs: the tables alone tell, and whoever listens on the bus hears of it."""
    await declared(own_stack.amqp_url)
    async with AmqpClient.open(own_stack.amqp_url, "ops") as amqp, own_stack.tenant("silent") as tenant:
        heard = await amqp.events("liveness.missed")
        with pings() as (url, came):
            words = ["--all-tenants", "--watch", "--every", "500ms", "--ping-url", url]
            watch = await asyncio.create_subprocess_exec(
                *audit_command(*words, "--amqp-url", own_stack.amqp_url, "--tenant", "ops"),
                env=environment(own_stack),
                stderr=asyncio.subprocess.PIPE,
            )

            async def has(path: str) -> str | None:
                return next((text for to, text in came if to == path), None)

            well = await until(lambda: has("/ping"), what="a ping")
            await tenant.ledger.execute(OVERDUE)
            silent = await until(lambda: has("/ping/fail"), what="a ping that says no")
            async with asyncio.timeout(WAIT_TIMEOUT):
                event = await heard.get()
                watch.send_signal(signal.SIGTERM)  # ^C is ignored where a shell runs us behind it
                await watch.communicate()

    assert well == "owed 0, recorded 0: all well"
    assert silent is not None
    assert "ticker is silent since" in silent
    assert (event["type"], event["data"]["who"]) == ("harebell.watch.missed.v1", "ticker")


async def declared(amqp_url: str) -> None:
    """The bus as a service declares it; none runs here."""
    connection = await connect(amqp_url, name="test", properties={})
    await declare(connection, SYSTEM)
    await connection.close()
