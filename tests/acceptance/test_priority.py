"""Priorities within one lane on a running stack: the order of starts in a backlog."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from statistics import mean
from typing import Any

import pytest
from tests.acceptance.faults import Pool, put_spread, until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, time_in
from tests.rig.polling import WAIT_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SLOTS = 40  # of the lane normal
LOW, HIGH = 400, 40  # runs of priority 4, and of priority 7
LATER = 0.4  # seconds from the due time of the low runs to that of the high runs
# Low runs that start while the high runs wait: in each slot one before and one during that wait.
MAX_BETWEEN = 2 * SLOTS
MIN_FACTOR = 2  # between the waits of a low run and of a high run, also on a busy machine

BACKLOG, FLOOD = 40, 120  # runs of priority 2 with one due time, and over some seconds
FLOOD_SECONDS = 12.0
FIRST = 3.0  # seconds until the first due time
PRIORITY_STEP = timedelta(seconds=5)
LATE_CLAIM = 1.0  # seconds in which a run may start before an earlier rank that is not claimed yet

Record = Callable[[str, object], None]


@pytest.mark.long
@pytest.mark.requirement("S21", "S43")
@pytest.mark.parametrize("share", ["0.75", "1"], ids=["shared-lane", "whole-lane"])
async def test_high_runs_start_before_a_backlog_of_low_runs_of_the_same_lane(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record, share: str
) -> None:
    """Use one target, so that the runs are deferred if its share of the lane is below 1."""
    await pool.start(1, HAREBELL_SLOTS_NORMAL=str(SLOTS), HAREBELL_MAX_TARGET_SHARE=share)
    due_at = time_in(4)
    await asyncio.gather(
        put_at(faulty_tenant, target.http("low", sleep=1), LOW, at=due_at, priority=4, pool=pool),
        put_at(
            faulty_tenant,
            target.http("high", sleep=1),
            HIGH,
            at=due_at + timedelta(seconds=LATER),
            priority=7,
            pool=pool,
        ),
    )

    await faulty_tenant.until_runs(LOW + HIGH, "succeeded", within=2 * WAIT_TIMEOUT)

    low, high = target.calls("low"), target.calls("high")
    waits = {name: mean(call.late for call in calls) for name, calls in (("l", low), ("h", high))}
    last_high = max(call.started_at for call in high)
    first_due = min(call.scheduled_for for call in high)
    between = sum(first_due < call.started_at < last_high for call in low)
    record_property("waited", f"low {waits['l']:.2f} s, high {waits['h']:.2f} s")
    record_property("low runs before the last high run", f"{between} of {LOW}")
    assert (len(low), len(high)) == (LOW, HIGH)
    assert between <= MAX_BETWEEN
    assert waits["h"] * MIN_FACTOR < waits["l"]


@pytest.mark.long
@pytest.mark.requirement("S21", "S43")
async def test_run_of_the_lowest_priority_waits_no_longer_than_its_priority_step(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    """A flood of priority 2 exceeds the capacity of the lane until after the start of the run."""
    await pool.start(1, HAREBELL_SLOTS_LOW="2", HAREBELL_MAX_TARGET_SHARE="1")
    flood = target.http("flood", sleep=0.25)
    due_at = time_in(FIRST)
    await put_at(faulty_tenant, flood, BACKLOG, at=due_at, priority=2, pool=pool)
    more: dict[str, Any] = {"priority": 2, "pool": pool.name, "prefix": "more"}
    await put_spread(faulty_tenant, flood, FLOOD, first=FIRST, over=FLOOD_SECONDS, **more)
    when = {"at": (due_at + timedelta(seconds=2)).isoformat()}
    await faulty_tenant.put("lowest", when, target.http("lowest"), priority=1, pool=pool.name)

    (lowest,) = await until_called(target, "lowest", within=2 * WAIT_TIMEOUT)
    await faulty_tenant.until_runs(BACKLOG + FLOOD + 1, "succeeded", within=2 * WAIT_TIMEOUT)

    calls = target.calls("flood")
    overtaking = [
        call
        for call in calls
        if call.scheduled_for > lowest.scheduled_for and call.started_at < lowest.started_at
    ]
    record_property("waited", f"{lowest.late:.2f} s, behind {len(overtaking)} later runs")
    assert_waiting(calls, lowest)
    assert overtaking
    latest = max(call.scheduled_for for call in overtaking) - lowest.scheduled_for
    assert latest <= PRIORITY_STEP + timedelta(seconds=LATE_CLAIM)


async def put_at(
    tenant: Tenant, target: dict[str, Any], runs: int, *, at: datetime, priority: int, pool: Pool
) -> None:
    """Put one-shot schedules with one due time."""
    responses = await tenant.harebell.put_many(
        [
            {
                "key": f"{priority}-{number}",
                "when": {"at": at.isoformat()},
                "target": target,
                "priority": priority,
                "pool": pool.name,
            }
            for number in range(runs)
        ]
    )
    assert all(response.ok for response in responses)


def assert_waiting(calls: Sequence[Call], run: Call) -> None:
    """Assert that other due runs waited when this run started, so that the lane was full."""
    waiting = [call for call in calls if call.scheduled_for < run.started_at < call.started_at]
    assert len(waiting) > 2
