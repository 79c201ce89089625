"""Tickers: their idle statements, the bound of a pass and the catch-up after a stop."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.acceptance import counters
from tests.acceptance.faults import assert_each_once, count_of, put_spread, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now, time_in
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

TICKER = "ticker-1"
EVERY_HOUR = {"every": "1h"}
WATCH_TIME = 20.0  # seconds of the idle ticker
MAX_STATEMENTS = 5.0  # per second; the intervals in docs/architecture/ticker.md add up to 4
IDLE_POLL_INTERVAL = 15.0  # seconds between two polls of an idle ticker
MAX_START_DELAY = timedelta(seconds=5)  # of overdue runs, after the ticker is ready
COMMIT_TIME = 3.0  # seconds, longer than executors wait for the row of a ticket

# Each commit that inserts a schedule state takes COMMIT_TIME.
SLOW_COMMITS = f"""
CREATE FUNCTION delay_commit() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep({COMMIT_TIME}); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER delay_commit AFTER INSERT ON schedule_state DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION delay_commit();
"""


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S45")
async def test_idle_ticker_sends_few_statements_and_wakes_on_time(
    servers: Servers,
    own_stack: Stack,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    if servers.private is None:
        pytest.skip("The test reads the counters of a private database.")
    await asyncio.to_thread(own_stack.start)
    async with own_stack.tenant("idle") as tenant:
        schedules = [
            {"key": f"far-{n}", "when": EVERY_HOUR, "target": target.http("far")}
            for n in range(300)
        ]
        await tenant.harebell.put_many(schedules)
        await counters.prepare(tenant)
        before = await counters.ticker_statements(tenant)
        await asyncio.sleep(WATCH_TIME)
        statements = await counters.ticker_statements(tenant) - before
        await tenant.put("soon", {"after": "2s"}, target.http("soon"))
        (run,) = await tenant.until_runs(1, "succeeded")

    polls = sum(count for query, count in statements.items() if "FOR UPDATE SKIP LOCKED" in query)
    record_property("statements a second", round(statements.total() / WATCH_TIME, 2))
    record_property("statements", statements.most_common())
    each_second = [
        query
        for query, count in statements.items()
        if count > WATCH_TIME / 2
        and "clock_timestamp" not in query  # each service reads the time five times every 5 s
    ]
    assert each_second == []
    assert polls <= 2 * (WATCH_TIME / IDLE_POLL_INTERVAL + 1)
    assert statements.total() / WATCH_TIME < MAX_STATEMENTS
    assert run["started_at"] - run["due_at"] < timedelta(seconds=1)


@pytest.mark.long
@pytest.mark.requirement("S53")
async def test_full_staging_pass_is_reported_and_followed_by_the_next(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0))
    short_horizon_ticker = await start(own_stack, ServiceKind.TICKER, HAREBELL_HORIZON="2s")
    async with own_stack.tenant("bounded") as tenant:
        await put_spread(tenant, target.http("bounded"), 100, first=20, over=1)
        own_stack.kill(short_horizon_ticker.name)
        unstaged = await tenant.runs()

        ticker = await start(own_stack, ServiceKind.TICKER, HAREBELL_STAGING_BATCH="10")
        await tenant.until_runs(100, "staged")
        full = await count_of(ticker, r'harebell_staging_passes_total\{end="full"\}')
        runs = await tenant.until_runs(100, "succeeded", within=60)

    assert unstaged == []
    assert full >= 9
    assert_each_once(target.calls("bounded"), runs, 100)


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S38", "S55")
async def test_overdue_runs_start_within_5_s_of_readiness_before_later_runs(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0))
    short_horizon_ticker = await start(own_stack, ServiceKind.TICKER, HAREBELL_HORIZON="2s")
    async with own_stack.tenant("overdue") as tenant:
        missed_schedule = await put_hourly(tenant, target.http("overdue"))
        later = await put_spread(tenant, target.http("later"), 1, first=30, over=1)
        overdue = {
            missed_schedule,
            *await put_all_at(tenant, target.http("overdue"), 40, time_in(8)),
        }
        own_stack.kill(short_horizon_ticker.name)
        await set_back(tenant, missed_schedule, hours=4)
        await asyncio.sleep(9)
        unstaged = await tenant.runs()

        await start(own_stack, ServiceKind.TICKER, HAREBELL_STAGING_BATCH="20")
        ready_at = now()
        runs = await tenant.until_runs(40 + 4 + 1, "succeeded", within=60)

    started_times = [run["started_at"] for run in runs if str(run["schedule_id"]) in overdue]
    (last,) = [run["started_at"] for run in runs if str(run["schedule_id"]) in later]
    record_property(
        "begun", f"{(max(started_times) - ready_at).total_seconds():.2f} s after readiness"
    )
    assert (unstaged, len(started_times)) == ([], 44)
    assert max(started_times) - ready_at < MAX_START_DELAY
    assert max(started_times) < last


async def put_hourly(tenant: Tenant, target: dict[str, Any]) -> str:
    """Put an hourly schedule half an hour from now that catches up on every missed time."""
    when = {"cron": f"{(now() - timedelta(minutes=30)).minute} * * * *"}
    return await tenant.put("hourly", when, target, catch_up={"mode": "all", "window": "24h"})


async def set_back(tenant: Tenant, schedule: str, *, hours: int) -> None:
    """Change the schedule as if no ticker had run for that many hours."""
    await tenant.ledger.execute(
        "UPDATE schedule_state SET next_at = next_at - make_interval(hours => $2), "
        "planned_until = planned_until - make_interval(hours => $2) WHERE schedule_id = $1",
        schedule,
        hours,
    )


async def put_all_at(
    tenant: Tenant, target: dict[str, Any], runs: int, due_at: datetime
) -> list[str]:
    when = {"at": due_at.isoformat()}
    schedules = [{"key": f"at-{n}", "when": when, "target": target} for n in range(runs)]
    return [str(each.id) for each in await tenant.harebell.put_many(schedules) if each.ok]


@pytest.mark.requirement("S76")
async def test_run_executes_once_when_its_ticket_arrives_before_a_slow_commit(
    own_stack: Stack, target: Target
) -> None:
    members = await asyncio.to_thread(own_stack.start)
    (ticker,) = [member for member in members if member.name == TICKER]
    async with own_stack.tenant("slow") as tenant:
        await tenant.ledger.execute(SLOW_COMMITS)
        await tenant.put("slow", {"now": True}, target.http("slow"))
        runs = await tenant.until_runs(1, "succeeded", within=10)

    assert await count_of(ticker, "harebell_republished_tickets_total") >= 1
    assert_each_once(target.calls("slow"), runs, 1)
