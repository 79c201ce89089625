"""What a run costs in messages and statements, by the servers' own counters."""

import asyncio
import logging
from datetime import datetime

import pytest
from tests.acceptance import counters
from tests.acceptance.stack import WAIT_TIMEOUT, Tenant, time_in, now
from tests.acceptance.amqp_client import AmqpClient
from tests.rig.servers import Servers

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RUNS = 2_000
IDLE = 15.0  # seconds to count what services do by themselves; clocks are set every 5
PORTION = 500  # schedules of one message
AHEAD = 6.0  # seconds: a delay tier lies in between
MESSAGES = 0.1  # a run, from staging to settle
STATEMENTS = 0.1
ROWS = 50  # of one statement that stages, claims or settles


async def run_all_at_once(tenant: Tenant, amqp: AmqpClient, name: str, ahead: float) -> datetime:
    """Staged, run, settled and told; the instant at which they were due."""
    told = await amqp.events("run.succeeded")
    due_at = time_in(ahead)
    schedules = [
        {
            "key": f"{name}-{number}",
            "when": {"at": due_at.isoformat()},
            "target": {"task": {"name": "harebell.echo", "args": {"number": number}}},
        }
        for number in range(RUNS)
    ]
    for start in range(0, RUNS, PORTION):
        await tenant.harebell.put_many(schedules[start : start + PORTION])
    async with asyncio.timeout((due_at - now()).total_seconds() + WAIT_TIMEOUT):
        for _ in range(RUNS):
            await told.get()
    return due_at


def since(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> dict[str, float]:
    """Rows a statement, between two readings."""
    spent = {
        name: (rows - before[name][0], calls - before[name][1])
        for name, (rows, calls) in after.items()
    }
    return {name: rows / calls for name, (rows, calls) in spent.items()}


async def idle_statements(tenant: Tenant) -> float:
    """A second, that the services ask by themselves: looks, sweeps, clocks."""
    before = await counters.read(tenant)
    await asyncio.sleep(IDLE)
    return (await counters.read(tenant) - before).statements / IDLE


@pytest.mark.requirement("S64", "S87")
async def test_two_thousand_runs_of_one_instant_cost_few_messages_and_fewer_statements(
    servers: Servers, tenant: Tenant
) -> None:
    if servers.private is None:
        pytest.skip("counts what a private broker and a private database count")
    await counters.prepare(tenant)

    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        # a connection's first use of an array makes the driver look its type up
        await run_all_at_once(tenant, amqp, "warm-up", 1)
        began_at, before = now(), await counters.read(tenant)
        written = await counters.run_statements(tenant)
        due_at = await run_all_at_once(tenant, amqp, "counted", AHEAD)
        spent = await counters.read(tenant) - before
        per_statement = since(written, await counters.run_statements(tenant))
        took = (now() - began_at).total_seconds()
        idle = took * await idle_statements(tenant)

    rows = [row for row in await tenant.runs("succeeded") if row["scheduled_for"] == due_at]
    log.info("spent %s, in %.1f s, of which idle %.0f statements", spent, took, idle)
    log.info("rows of a statement: %s", per_statement)
    assert len(rows) == RUNS
    assert min(row["started_at"] for row in rows) >= due_at
    assert spent.messages / RUNS <= MESSAGES
    assert (spent.statements - idle) / RUNS <= STATEMENTS
    assert min(per_statement.values()) >= ROWS, per_statement
