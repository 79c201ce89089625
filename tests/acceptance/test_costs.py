"""The messages and statements for a run, as the servers count them."""

import asyncio
import logging
import signal
from datetime import datetime

import pytest
from tests.acceptance import counters
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.faults import send
from tests.acceptance.stack import Tenant, now, time_in
from tests.benchmarks.database_work import DatabaseWork
from tests.benchmarks.sender import Sender
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.rig.servers import Servers

from harebell.ticker.retention import TASK

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RUNS = 2_000
IDLE_TIME = 15.0  # seconds to count the periodic statements; each service reads the time every 5 s
BATCH_SIZE = 500  # schedules in one message
FIRST_DUE = 6.0  # seconds, so that each ticket waits in a delay queue
MAX_MESSAGES = 0.1  # for one run, from the staging to the completion
MAX_STATEMENTS = 0.1
SINGLES = 1_000  # messages with one immediate schedule each
# For one immediate schedule in a message of its own, which is one of the messages.
MAX_SINGLE_MESSAGES = 1.6
MAX_SINGLE_STATEMENTS = 0.6
MAX_SINGLE_WAL = 6_000  # bytes
_RETENTION_HAS_ENDED = """
SELECT EXISTS (SELECT FROM maintenance_leases WHERE task = $1 AND finished_at IS NOT NULL)
"""
MIN_ROWS = 25  # of one statement that stages, claims or completes runs, on a busy machine


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


async def first_retention(tenant: Tenant) -> None:
    """Wait until the first pass of the retention has ended, because it belongs to no run."""

    async def has_ended() -> bool:
        return bool(await tenant.ledger.fetchval(_RETENTION_HAS_ENDED, TASK))

    await until(has_ended, what="the end of the first pass of the retention")


async def idle_statements(tenant: Tenant) -> float:
    """Return the number of periodic statements of the services for one second."""
    before = await counters.read(tenant)
    await asyncio.sleep(IDLE_TIME)
    return (await counters.read(tenant) - before).statements / IDLE_TIME


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S64", "S87")
async def test_two_thousand_runs_with_one_due_time_need_few_messages_and_statements(
    servers: Servers, tenant: Tenant
) -> None:
    if servers.private is None:
        pytest.skip("The test reads the counters of private servers.")
    await counters.prepare(tenant)
    await first_retention(tenant)

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


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S64", "S87")
async def test_single_immediate_messages_need_few_messages_statements_and_bytes_of_wal(
    servers: Servers, tenant: Tenant
) -> None:
    if servers.private is None:
        pytest.skip("The test reads the counters of private servers.")
    await counters.prepare(tenant)
    await first_retention(tenant)
    target = {"task": {"name": "harebell.echo"}}

    with Sender.open(tenant.stack.amqp_url, tenant.name, target=target) as sender:
        await sender.send(SINGLES // 10, "warm-up")
        await tenant.until_runs(SINGLES // 10, "succeeded")
        began_at, before = now(), await counters.read(tenant)
        work = await DatabaseWork.read(tenant.ledger)
        # The load of the machine would decide how many messages wait when intake reads them.
        send(tenant.stack, "intake-1", signal.SIGSTOP)
        await sender.send(SINGLES, "counted")
        send(tenant.stack, "intake-1", signal.SIGCONT)
        await tenant.until_runs(SINGLES + SINGLES // 10, "succeeded")
        used = await counters.read(tenant) - before
        worked = (await DatabaseWork.read(tenant.ledger)).since(work, SINGLES)
        duration = (now() - began_at).total_seconds()
        idle = duration * await idle_statements(tenant)

    log.info("spent %s and %s, of which idle %.0f statements", used, worked, idle)
    assert used.messages / SINGLES <= MAX_SINGLE_MESSAGES
    assert (used.statements - idle) / SINGLES <= MAX_SINGLE_STATEMENTS
    assert worked["wal_bytes"] <= MAX_SINGLE_WAL
