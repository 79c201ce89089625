"""Schedules whose next run depends on the outcome of the last run."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.acceptance.faults import until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, time_in
from tests.rig.polling import until

from harebell.client import ScheduleDetail

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SECOND = timedelta(seconds=1)
TICK = timedelta(milliseconds=1)  # scheduled times are in whole milliseconds
SINGLE_ATTEMPT = {"max_attempts": 1}


async def until_state(tenant: Tenant, key: str, state: str) -> ScheduleDetail:
    async def is_reached() -> ScheduleDetail | None:
        shown = await tenant.harebell.schedule(key=key)
        return shown if shown.state == state else None

    shown = await until(is_reached, what=f"{key} being {state}")
    assert shown is not None
    return shown


def scheduled_times(calls: Sequence[Call]) -> list[Any]:
    return sorted(call.scheduled_for for call in calls)


@pytest.mark.requirement("ASK-17")
async def test_run_from_completion_starts_one_interval_after_the_end_of_the_run_before(
    tenant: Tenant, target: Target
) -> None:
    when = {"every": "1s", "from": "completion", "times": 3}
    await tenant.put("gentle", when, target.http("gentle", sleep=1.2))

    runs = await tenant.until_runs(3, "succeeded")

    for before, after in pairwise(runs):
        assert before["finished_at"] + SECOND - TICK <= after["started_at"]
        assert after["started_at"] < before["finished_at"] + 4 * SECOND
    await until_state(tenant, "gentle", "completed")
    assert len(target.calls("gentle")) == 3


async def test_until_success_runs_at_each_time_until_one_run_succeeds(
    tenant: Tenant, target: Target
) -> None:
    when = {"every": "1s", "until": "success"}
    await tenant.put("trying", when, target.http("trying", broken="trying"), retry=SINGLE_ATTEMPT)
    await until_called(target, "trying", 2)

    target.fix("trying")
    await tenant.until_runs(1, "succeeded")
    await until_state(tenant, "trying", "completed")

    runs = await tenant.runs()
    assert [run["state"] for run in runs[-2:]] == ["dead", "succeeded"]
    assert [call.ok for call in target.calls("trying")][-1] is True


@pytest.mark.long
async def test_any_of_two_intervals_has_one_run_at_a_common_time(
    tenant: Tenant, target: Target
) -> None:
    start = time_in(3)
    rules = [{"every": every, "start": start.isoformat()} for every in ("2s", "3s")]
    when = {"any_of": rules, "end": (start + 6 * SECOND).isoformat()}
    await tenant.put("both", when, target.http("both"))

    await until_called(target, "both", 5)
    await until_state(tenant, "both", "completed")

    assert scheduled_times(target.calls("both")) == [start + k * SECOND for k in (0, 2, 3, 4, 6)]


async def test_successive_failures_pause_the_schedule_until_a_resume(
    tenant: Tenant, target: Target
) -> None:
    hook = target.http("failing", broken="failing")
    policies = {"retry": SINGLE_ATTEMPT, "pause_after_failures": 2}
    await tenant.put("failing", {"every": "1s"}, hook, **policies)

    shown = await until_state(tenant, "failing", "paused")
    dead = await tenant.runs("dead")
    target.fix("failing")
    await tenant.harebell.resume(key="failing")
    await tenant.until_runs(1, "succeeded")
    await tenant.harebell.cancel(key="failing")

    assert "failed in a row" in (shown.reason or "")
    assert len(dead) >= 2
