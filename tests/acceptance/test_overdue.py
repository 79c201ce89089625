"""Many overdue runs after a stop of the ticker, before later runs."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.acceptance.faults import assert_each_once, count_of, put_spread, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, now

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

STAGING_BATCH = 20  # schedules in one pass
OVERDUE = 200
LATER = 40
FIRST_LATER = 6.0  # seconds after the ticker is ready
SHORT_HORIZON = {"HAREBELL_HORIZON": "2s"}
STOP_DURATION = 6.0  # seconds until all overdue runs are due
MAX_START_DELAY = timedelta(seconds=5)  # of overdue runs, after the ticker is ready
FULL_PASSES = r'harebell_staging_passes_total\{end="full"\}'


@pytest.mark.measures
@pytest.mark.requirement("S38")
async def test_overdue_runs_use_half_of_each_pass_and_start_before_later_runs(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0))
    ticker = await start(own_stack, ServiceKind.TICKER, 1, **SHORT_HORIZON)
    async with own_stack.tenant("overdue") as tenant:
        hook = target.http("overdue")
        overdue = await put_spread(tenant, hook, OVERDUE, first=4, over=1)
        own_stack.kill(ticker.name)
        await asyncio.sleep(STOP_DURATION)
        unstaged = await tenant.runs()

        ticker = await start(
            own_stack, ServiceKind.TICKER, HAREBELL_STAGING_BATCH=str(STAGING_BATCH)
        )
        ready_at = now()
        later = await put_spread(tenant, hook, LATER, first=FIRST_LATER, over=1, prefix="later")
        runs = await tenant.until_runs(OVERDUE + LATER, "succeeded", within=60)
        full = await count_of(ticker, FULL_PASSES)

    started = {str(run["schedule_id"]): run["started_at"] for run in runs}
    last_overdue = max(started[each] for each in overdue)
    record_property("last overdue start", f"{(last_overdue - ready_at).total_seconds():.2f} s")
    assert unstaged == []
    assert full >= OVERDUE / (STAGING_BATCH / 2)
    assert last_overdue - ready_at < MAX_START_DELAY
    assert last_overdue < min(started[each] for each in later)
    assert_each_once(target.calls("overdue"), runs, OVERDUE + LATER)
