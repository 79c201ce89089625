"""The messages and statements for a run, as the servers count them."""

import asyncio
import logging
from datetime import datetime

import pytest
from tests.acceptance import counters
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.stack import WAIT_TIMEOUT, Tenant, now, time_in
from tests.rig.servers import Servers

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RUNS = 2_000
IDLE_TIME = 15.0  # seconds to count the periodic statements; each service reads the time every 5 s
BATCH_SIZE = 500  # schedules in one message
FIRST_DUE = 6.0  # seconds, so that each ticket waits in a delay queue
MAX_MESSAGES = 0.1  # for one run, from the staging to the completion
MAX_STATEMENTS = 0.1
MIN_ROWS = 50  # of one statement that stages, claims or completes runs


async def run_at_one_time(tenant: Tenant, amqp: AmqpClient, name: str, ahead: float) -> datetime:
    """Put the runs, wait for the event of each run, and return their due time."""
    events = await amqp.events("run.succeeded")
    due_at = time_in(ahead)
    schedules = [
        {
            "key": f"{name}-{number}",
            "when": {"at": due_at.isoformat()},
            "target": {"task": {"name": "harebell.echo", "args": {"number": number}}},
        }
        for number in range(RUNS)
    ]
    for start in range(0, RUNS, BATCH_SIZE):
        await tenant.harebell.put_many(schedules[start : start + BATCH_SIZE])
    async with asyncio.timeout((due_at - now()).total_seconds() + WAIT_TIMEOUT):
        for _ in range(RUNS):
            await events.get()
    return due_at


def rows_per_statement(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> dict[str, float]:
    """Return the rows for one statement between two readings."""
    used = {
        name: (rows - before[name][0], calls - before[name][1])
        for name, (rows, calls) in after.items()
    }
    return {name: rows / calls for name, (rows, calls) in used.items()}


async def idle_statements(tenant: Tenant) -> float:
    """Return the number of periodic statements of the services for one second."""
    before = await counters.read(tenant)
    await asyncio.sleep(IDLE_TIME)
    return (await counters.read(tenant) - before).statements / IDLE_TIME


@pytest.mark.requirement("S64", "S87")
async def test_two_thousand_runs_with_one_due_time_need_few_messages_and_statements(
    servers: Servers, tenant: Tenant
) -> None:
    if servers.private is None:
        pytest.skip("The test reads the counters of private servers.")
    await counters.prepare(tenant)

    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        # the driver queries the type of an array at the first use in a connection
        await run_at_one_time(tenant, amqp, "warm-up", 1)
        began_at, before = now(), await counters.read(tenant)
        rows_before = await counters.run_statements(tenant)
        due_at = await run_at_one_time(tenant, amqp, "counted", FIRST_DUE)
        used = await counters.read(tenant) - before
        per_statement = rows_per_statement(rows_before, await counters.run_statements(tenant))
        duration = (now() - began_at).total_seconds()
        idle = duration * await idle_statements(tenant)

    rows = [row for row in await tenant.runs("succeeded") if row["scheduled_for"] == due_at]
    log.info("spent %s, in %.1f s, of which idle %.0f statements", used, duration, idle)
    log.info("rows of a statement: %s", per_statement)
    assert len(rows) == RUNS
    assert min(row["started_at"] for row in rows) >= due_at
    assert used.messages / RUNS <= MAX_MESSAGES
    assert (used.statements - idle) / RUNS <= MAX_STATEMENTS
    assert min(per_statement.values()) >= MIN_ROWS, per_statement
