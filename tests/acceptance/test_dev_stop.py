"""`harebell dev stop` while an executor has a running attempt."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.test_demo import HAS_GIVEN_SERVERS
from tests.rig.command_line import caller_environment
from tests.rig.polling import until

from harebell.client import Client
from harebell.dev.plan import STOP_TIMEOUT
from harebell.dev.stack import Stack

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        HAS_GIVEN_SERVERS,
        reason="The stack would share queues with other services on a given broker.",
    ),
]

ATTEMPT = STOP_TIMEOUT + 5  # seconds; longer than the stop of a service without attempts
_RUN = "SELECT state, attempt FROM runs WHERE state = coalesce($1, state)"


@pytest.mark.requirement("S74")
async def test_stop_leaves_a_running_attempt_undisturbed(target: Target, tmp_path: Path) -> None:
    stack = Stack(tmp_path, environ=caller_environment())
    try:
        status = await asyncio.to_thread(stack.start)
        ledger = await asyncpg.connect(status.database_url)
        async with Client.connect(status.amqp_url) as harebell:
            call = target.http("long", sleep=ATTEMPT)
            await harebell.put({"key": "long", "when": {"now": True}, "target": call})
            await until(lambda: ledger.fetchrow(_RUN, "running"), what="a running attempt")
        await ledger.close()

        await asyncio.to_thread(stack.stop)

        await asyncio.to_thread(stack.start)
        ledger = await asyncpg.connect(status.database_url)
        runs = await ledger.fetch(_RUN, None)
        attempts = await ledger.fetch("SELECT outcome, duration_ms FROM attempts")
        await ledger.close()
    finally:
        await asyncio.to_thread(stack.stop, wipe=True)

    assert [tuple(each) for each in runs] == [("succeeded", 1)]
    assert [each["outcome"] for each in attempts] == ["succeeded"]
    assert attempts[0]["duration_ms"] >= STOP_TIMEOUT * 1000
