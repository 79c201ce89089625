"""Tickers that die between the publish and the commit, and an outage of every ticker."""

import asyncio
from collections import Counter
from collections.abc import Callable

import asyncpg
import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.faults import (
    Pool,
    assert_each_once,
    put_spread,
    start,
    start_with_kill,
    until_dead,
)
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now, time_in
from tests.acceptance.worker_queue import open_queue
from tests.rig.polling import until

from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

TICKER = "ticker-1"
TIMES = 5
OUTAGE = 20.0  # seconds without any ticker
MAX_LATENESS = 0.25  # seconds


@pytest.mark.long
@pytest.mark.requirement("S39", "S49", "S88", "ASK-7")
async def test_runs_execute_once_when_a_ticker_is_killed_between_publish_and_commit(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    stack = pool.stack
    await pool.start()
    stack.stop(TICKER)
    short_horizon_ticker = await start(stack, ServiceKind.TICKER, 2, HAREBELL_HORIZON="2s")
    start_at = time_in(10)
    when = {"every": "1s", "start": start_at.isoformat(), "times": TIMES}
    await faulty_tenant.put("published", when, target.http("published"), pool=pool.name)
    stack.kill(short_horizon_ticker.name)
    unstaged = await faulty_tenant.runs()

    victim = await start_with_kill(stack, ServiceKind.TICKER, 3, "ticker.before_commit")
    await until_dead(stack, victim)
    rolled_back = await faulty_tenant.runs()
    await start(stack, ServiceKind.TICKER)
    runs = await faulty_tenant.until_runs(TIMES, "succeeded")

    assert (unstaged, rolled_back) == ([], [])
    assert_each_once(target.calls("published"), runs, TIMES)


@pytest.mark.requirement("S25")
async def test_command_is_applied_once_when_a_ticker_is_killed_before_the_commit(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    stack = pool.stack
    await pool.start()
    stack.stop(TICKER)
    victim = await start_with_kill(stack, ServiceKind.TICKER, 2, "ticker.change_before_commit")
    putting = asyncio.create_task(
        put_spread(faulty_tenant, target.http("changed"), 20, first=4, over=2, pool=pool.name)
    )

    await until_dead(stack, victim)
    await start(stack, ServiceKind.TICKER)
    expected = await putting
    runs = await faulty_tenant.until_runs(20, "succeeded")

    assert len(set(expected)) == 20
    assert Counter(str(run["schedule_id"]) for run in runs) == Counter(expected)
    assert_each_once(target.calls("changed"), runs, 20)


@pytest.mark.requirement("S59", "S25")
async def test_report_of_a_worker_ends_its_run_once_when_a_ticker_is_killed_before_the_commit(
    faulty_tenant: Tenant, pool: Pool
) -> None:
    """The broker delivers the report again, and a further report has no effect.

    The event of the second run follows every event of the first run.
    """
    stack, harebell = pool.stack, faulty_tenant.harebell
    await pool.start()
    async with (
        open_queue(faulty_tenant) as queue,
        AmqpClient.open(stack.amqp_url, faulty_tenant.name) as client,
    ):
        events = await client.events("run.succeeded")
        calls = []
        for number in range(2):
            hook = queue.target(heartbeat="60s")
            await faulty_tenant.put(f"work-{number}", {"now": True}, hook, pool=pool.name)
            calls.append(await queue.next_call())
        (run_id, token, _), (second_id, second_token, _) = calls
        stack.stop(TICKER)
        victim = await start_with_kill(stack, ServiceKind.TICKER, 2, "ticker.report_before_commit")
        completing = asyncio.create_task(harebell.complete_run(run_id, token, result={"rows": 3}))

        await until_dead(stack, victim)
        rolled_back = await faulty_tenant.run(run_id)
        await start(stack, ServiceKind.TICKER)
        completed = await completing
        repeated = await harebell.complete_run(run_id, token, result={"rows": 3})
        await harebell.complete_run(second_id, second_token)
        ended = [(await asyncio.wait_for(events.get(), 30))["data"]["run_id"] for _ in range(2)]

    (attempt,) = await faulty_tenant.attempts(run_id)
    assert (rolled_back["state"], rolled_back["lease_holder"]) == ("running", "worker")
    assert (completed.status, repeated.status) == ("completed", "repeated")
    assert (attempt["outcome"], attempt["result"]) == ("succeeded", '{"rows":3}')
    assert ended == [run_id, second_id]


@pytest.mark.requirement("S12")
async def test_unreadable_schedule_becomes_errored_and_stops_no_other_schedule(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    stack, ledger = pool.stack, faulty_tenant.ledger
    await pool.start()
    when = {"every": "1h", "start": time_in(3600).isoformat()}
    broken = await faulty_tenant.put("broken", when, target.http("broken"), pool=pool.name)
    stack.stop(TICKER)
    await ledger.execute(
        "UPDATE schedule_versions SET definition = '{}' WHERE schedule_id = $1", broken
    )
    await ledger.execute("UPDATE schedule_state SET next_at = now() WHERE schedule_id = $1", broken)
    ticker = await start(stack, ServiceKind.TICKER)

    async def find_errored() -> asyncpg.Record | None:
        return await ledger.fetchrow(
            "SELECT reason FROM schedule_state WHERE schedule_id = $1 AND state = 'errored'", broken
        )

    state = await until(find_errored, what="the state errored of the broken schedule")
    await faulty_tenant.put("sound", {"now": True}, target.http("sound"), pool=pool.name)
    await faulty_tenant.until_runs(1, "succeeded")

    assert state is not None
    assert state["reason"].startswith("cannot be staged")
    process = stack.services.process(TICKER)
    assert process is not None
    assert process.pid == ticker.pid


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S55", "S88")
async def test_staged_runs_start_on_time_without_a_ticker(
    faulty_tenant: Tenant,
    pool: Pool,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    await pool.start()
    await put_spread(
        faulty_tenant, target.http("alone"), 20, first=2, over=OUTAGE - 2, pool=pool.name
    )

    pool.stack.kill(TICKER)
    died_at = now()
    runs = await faulty_tenant.until_runs(20, "succeeded", within=OUTAGE + 10)
    was_dead = pool.stack.services.process(TICKER) is None
    await start(pool.stack, ServiceKind.TICKER)

    late = sorted((run["started_at"] - run["due_at"]).total_seconds() for run in runs)
    record_property("lateness", f"p50 {late[10] * 1e3:.1f} ms, worst {late[-1] * 1e3:.1f} ms")
    assert was_dead
    assert runs[-1]["started_at"] > died_at
    assert_each_once(target.calls("alone"), runs, 20)
    assert late[0] >= 0
    assert late[-1] < MAX_LATENESS
