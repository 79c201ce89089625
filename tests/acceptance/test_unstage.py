"""Cancels, pauses and new versions of schedules whose run is already in the broker."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now, time_in

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SECOND = timedelta(seconds=1)


async def sleep_until(time: datetime) -> None:
    """Sleep until that time, because the test waits for no condition."""
    await asyncio.sleep((time - now()).total_seconds())


def at(time: datetime) -> dict[str, str]:
    return {"at": time.isoformat()}


async def wait_for_later_run(tenant: Tenant, target: Target, due_at: datetime) -> None:
    """Wait for the success of a run that is due two seconds later than `due_at`."""
    await tenant.put("one-after", at(due_at + 2 * SECOND), target.http("one-after"))
    await tenant.until_runs(1, "succeeded")


@pytest.mark.requirement("S33", "ASK-4")
@pytest.mark.long
async def test_run_unstaged_a_second_before_its_due_time_never_runs_and_has_a_reason(
    tenant: Tenant, target: Target
) -> None:
    due_at = time_in(5)
    reasons = {"cancel": "cancelled", "pause": "paused"}
    for verb in reasons:
        await tenant.put(verb, at(due_at), target.http(verb))
    staged = await tenant.runs("staged")

    await sleep_until(due_at - SECOND)
    responses = [
        await command(key=verb, note="not today")
        for verb, command in (
            ("cancel", tenant.harebell.cancel),
            ("pause", tenant.harebell.pause),
        )
    ]
    await wait_for_later_run(tenant, target, due_at)

    assert [row["staged_at"] < due_at - 2 * SECOND for row in staged] == [True, True]
    assert [response.in_flight for response in responses] == [[], []]
    runs = await tenant.runs()
    assert len(runs) == len(reasons) + 1
    rows = {row["schedule_id"]: row for row in runs}
    for verb, reason in reasons.items():
        assert target.calls(verb) == []
        shown = await tenant.harebell.schedule(key=verb)
        row = rows[shown.id]
        assert (row["scheduled_for"], row["state"], row["reason"]) == (due_at, "cancelled", reason)
        assert (row["attempt"], row["started_at"]) == (0, None)
        assert (shown.state, shown.reason) == (reason, "not today")


@pytest.mark.measures
async def test_pause_that_ends_before_the_due_time_changes_nothing(
    tenant: Tenant, target: Target
) -> None:
    due_at = time_in(5)
    await tenant.put("paused", at(due_at), target.http("resumed"))

    await sleep_until(due_at - 2 * SECOND)
    await tenant.harebell.pause(key="paused")
    await tenant.harebell.resume(key="paused")
    await tenant.until_runs(1, "succeeded")

    (call,) = target.calls("resumed")
    assert call.scheduled_for == due_at
    assert 0 <= call.late < 2


@pytest.mark.requirement("S14")
@pytest.mark.long
async def test_catch_up_policy_decides_about_the_times_of_a_short_pause(
    tenant: Tenant, target: Target
) -> None:
    start = time_in(3)
    expected = {"all": [0, 1, 2, 3, 4, 5], "none": [0, 1, 4, 5]}  # seconds after the start
    for mode, seconds in expected.items():
        when = {"every": "1s", "start": start.isoformat(), "times": len(seconds)}
        await tenant.put(mode, when, target.http(mode), catch_up={"mode": mode})

    await sleep_until(start + 1.5 * SECOND)
    for mode in expected:
        await tenant.harebell.pause(key=mode)
    await sleep_until(start + 3.5 * SECOND)
    for mode in expected:
        await tenant.harebell.resume(key=mode)
    await tenant.until_runs(sum(map(len, expected.values())), "succeeded")

    for mode, seconds in expected.items():
        called = [call.scheduled_for for call in target.calls(mode)]
        assert sorted(called) == [start + k * SECOND for k in seconds]


async def test_one_shot_runs_once_with_its_last_version_when_replaced_and_put_back(
    tenant: Tenant, target: Target
) -> None:
    due_at = time_in(4)
    await tenant.put("order", at(due_at), target.http("first"))

    await tenant.put("order", at(due_at), target.http("other"), expected_version="any")
    await tenant.put("order", at(due_at), target.http("first"), expected_version="any")
    await wait_for_later_run(tenant, target, due_at)

    assert [call.scheduled_for for call in target.calls("first")] == [due_at]
    assert target.calls("other") == []
    row, _ = await tenant.runs()
    assert (row["state"], row["version"], row["attempt"]) == ("succeeded", 3, 1)


@pytest.mark.requirement("S10")
async def test_interval_keeps_all_its_times_when_replaced_and_put_back(
    tenant: Tenant, target: Target
) -> None:
    start = time_in(3)
    bounds = {"start": start.isoformat(), "end": (start + 5 * SECOND).isoformat()}
    quick, slow = {"every": "1s", **bounds}, {"every": "1h", **bounds}
    await tenant.put("interval", quick, target.http("interval"))

    await sleep_until(start + 1.5 * SECOND)
    await tenant.put("interval", slow, target.http("interval"), expected_version="any")
    back: dict[str, Any] = {"expected_version": "any", "revive": True}  # the slow one has ended
    await tenant.put("interval", quick, target.http("interval"), **back)
    await tenant.until_runs(6, "succeeded")

    called = [call.scheduled_for for call in target.calls("interval")]
    assert sorted(called) == [start + k * SECOND for k in range(6)]
