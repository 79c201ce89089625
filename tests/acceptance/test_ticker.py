"""Tickers by themselves: how much they ask, what a pass takes, how they begin after a stop."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.acceptance import counters
from tests.acceptance.faults import assert_each_once, count_of, put_spread, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in, now
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

TICKER = "ticker-1"
FAR = {"every": "1h"}
SECONDS = 20.0  # that an idle ticker is watched for
POLL_INTERVAL = 15.0  # seconds between looks of a ticker that has nothing to stage
BEGIN = timedelta(seconds=5)  # after a ticker is ready: what is overdue has started by then
PHANTOM_AFTER = 3.0  # seconds that a commit takes: longer than executors believe in its tickets

# Its commits take their time: each row that it has moved on.
SLOW_COMMITS = f"""
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep({PHANTOM_AFTER}); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON schedule_state DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION dawdle();
"""


@pytest.mark.requirement("S45")
async def test_an_idle_ticker_asks_little_however_many_schedules_there_are_and_wakes_on_time(
    servers: Servers,
    own_stack: Stack,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    if servers.private is None:
        pytest.skip("counts what a private database counts")
    await asyncio.to_thread(own_stack.start)
    async with own_stack.tenant("idle") as tenant:
        far = [{"key": f"far-{n}", "when": FAR, "target": target.http("far")} for n in range(300)]
        await tenant.harebell.put_many(far)
        await counters.prepare(tenant)
        before = await counters.ticker_statements(tenant)
        await asyncio.sleep(SECONDS)
        asked = await counters.ticker_statements(tenant) - before
        await tenant.put("soon", {"after": "2s"}, target.http("soon"))
        (run,) = await tenant.until_runs(1, "succeeded")

    looks = sum(count for query, count in asked.items() if "FOR UPDATE SKIP LOCKED" in query)
    record_property("statements a second", round(asked.total() / SECONDS, 2))
    record_property("statements", asked.most_common())
    each_second = [
        query
        for query, count in asked.items()
        if count > SECONDS / 2 and "clock_timestamp" not in query  # five at once, every 5 s
    ]
    assert each_second == []
    assert looks <= 2 * (SECONDS / POLL_INTERVAL + 1)
    assert asked.total() / SECONDS < 4
    assert run["started_at"] - run["due_at"] < timedelta(seconds=1)


@pytest.mark.requirement("S53")
async def test_a_full_pass_is_followed_by_the_next_and_reported(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0))
    short = await start(own_stack, ServiceKind.TICKER, HAREBELL_HORIZON="2s")
    async with own_stack.tenant("bounded") as tenant:
        await put_spread(tenant, target.http("bounded"), 100, first=20, over=1)
        own_stack.kill(short.name)
        resting = await tenant.runs()

        ticker = await start(own_stack, ServiceKind.TICKER, HAREBELL_STAGING_BATCH="10")
        await tenant.until_runs(100, "staged")
        full = await count_of(ticker, r'harebell_staging_passes_total\{end="full"\}')
        runs = await tenant.until_runs(100, "succeeded", within=60)

    assert resting == []
    assert full >= 9
    assert_each_once(target.calls("bounded"), runs, 100)


@pytest.mark.requirement("S38", "S55")
async def test_overdue_runs_start_within_5_s_of_readiness_ahead_of_what_is_due_later(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0))
    short = await start(own_stack, ServiceKind.TICKER, HAREBELL_HORIZON="2s")
    async with own_stack.tenant("overdue") as tenant:
        missed = await put_hourly(tenant, target.http("overdue"))
        later = await put_spread(tenant, target.http("later"), 1, first=30, over=1)
        overdue = {missed, *await put_all_at(tenant, target.http("overdue"), 40, time_in(8))}
        own_stack.kill(short.name)
        await set_back(tenant, missed, hours=4)
        await asyncio.sleep(9)
        resting = await tenant.runs()

        await start(own_stack, ServiceKind.TICKER, HAREBELL_STAGING_BATCH="20")
        ready_at = now()
        runs = await tenant.until_runs(40 + 4 + 1, "succeeded", within=60)

    began = [run["started_at"] for run in runs if str(run["schedule_id"]) in overdue]
    (last,) = [run["started_at"] for run in runs if str(run["schedule_id"]) in later]
    record_property("begun", f"{(max(began) - ready_at).total_seconds():.2f} s after readiness")
    assert (resting, len(began)) == ([], 44)
    assert max(began) - ready_at < BEGIN
    assert max(began) < last


async def put_hourly(tenant: Tenant, target: dict[str, Any]) -> str:
    """Half an hour away from now, and made up for however often it was missed."""
    when = {"cron": f"{(now() - timedelta(minutes=30)).minute} * * * *"}
    return await tenant.put("hourly", when, target, catch_up={"mode": "all", "window": "24h"})


async def set_back(tenant: Tenant, schedule: str, *, hours: int) -> None:
    """As if no ticker had come to it for so long."""
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
async def test_tickets_that_have_outrun_a_slow_commit_are_published_again_and_run_once(
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
