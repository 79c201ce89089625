"""The command `harebell audit --watch`, which pings a URL while the tables are in order."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.stack import Stack
from tests.acceptance.test_audit import audit_command, environment
from tests.rig.command_line import end
from tests.rig.polling import WAIT_TIMEOUT, until

from harebell.connection.amqp import connect
from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import SYSTEM

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

_OVERDUE_SCHEDULE = """
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_until,
                            dispatched, open_runs)
VALUES (gen_random_uuid(), 1, 'active', now() - interval '5 min', now() - interval '5 min',
        now(), 0, '{}')
"""


@contextmanager
def ping_server() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the URL of a ping server and the list of the received paths and bodies."""
    received: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            received.append((self.path, self.rfile.read(length).decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ping", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.requirement("ASK-11")
async def test_watchdog_pings_while_the_audit_is_clean_and_reports_a_silent_ticker(
    own_stack: Stack,
) -> None:
    """The stack has no running service. The command reads only tables and publishes an event."""
    await declare_topology(own_stack.amqp_url)
    async with (
        AmqpClient.open(own_stack.amqp_url, "ops") as amqp,
        own_stack.tenant("silent") as tenant,
    ):
        events = await amqp.events("liveness.missed")
        with ping_server() as (url, received):
            arguments = ["--all-tenants", "--watch", "--every", "500ms", "--ping-url", url]
            watch = await asyncio.create_subprocess_exec(
                *audit_command(*arguments, "--amqp-url", own_stack.amqp_url, "--tenant", "ops"),
                env=environment(own_stack),
                stderr=asyncio.subprocess.PIPE,
            )

            async def has(path: str) -> str | None:
                return next((text for to, text in received if to == path), None)

            try:
                ping = await until(lambda: has("/ping"), what="a ping")
                await tenant.ledger.execute(_OVERDUE_SCHEDULE)
                failure = await until(lambda: has("/ping/fail"), what="a failure ping")
                async with asyncio.timeout(WAIT_TIMEOUT):
                    event = await events.get()
                    watch.send_signal(signal.SIGTERM)  # a background process ignores SIGINT
                    await watch.communicate()
            finally:
                await end(watch)

    assert ping == "The ledger records 0 of 0 required runs. The audit found no fault."
    assert failure is not None
    assert "The component ticker has not worked since" in failure
    assert (event["type"], event["data"]["component"]) == ("harebell.liveness.missed.v1", "ticker")


async def declare_topology(amqp_url: str) -> None:
    """Declare the topology, because no service runs."""
    connection = await connect(amqp_url, name="test", properties={})
    await declare(connection, SYSTEM)
    await connection.close()
