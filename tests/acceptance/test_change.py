"""Changes of active schedules: patches, changes with an effective time, pauses and skips."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.acceptance.faults import count_of, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now, time_in
from tests.rig.polling import until

from harebell.client import CommandRejected
from harebell.dev.local_services import StartedService
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SECOND = timedelta(seconds=1)
LATENCY = "harebell_change_latency_seconds_count"


async def sleep_until(time: datetime) -> None:
    """Sleep until that time, because the test waits for no condition."""
    await asyncio.sleep(max(0.0, (time - now()).total_seconds()))


def every_second(start: datetime, end: int) -> dict[str, Any]:
    """Return a `when` with one time each second from `start` to `end` seconds later."""
    return {
        "every": "1s",
        "start": start.isoformat(),
        "end": (start + end * SECOND).isoformat(),
    }


def called(target: Target, path: str) -> list[datetime]:
    return sorted(call.scheduled_for for call in target.calls(path))


@pytest.mark.requirement("S27")
async def test_patch_changes_every_later_run_and_keeps_the_interval(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("interval", {"every": "1s", "times": 5}, target.http("before"))
    first = (await until_called(target, "before"))[0].scheduled_for

    response = await tenant.harebell.patch({"target": target.http("after")}, key="interval")
    await tenant.until_runs(5, "succeeded")

    assert (response.status, response.version) == ("updated", 2)
    all_times = sorted(called(target, "before") + called(target, "after"))
    assert all_times == [first + k * SECOND for k in range(5)]
    assert called(target, "after") == all_times[-len(called(target, "after")) :]
    assert called(target, "after")


@pytest.mark.requirement("S23")
async def test_invalid_patch_names_the_field_and_changes_nothing(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("interval", {"every": "1h"}, target.http("never"))

    with pytest.raises(CommandRejected) as rejected:
        await tenant.harebell.patch({"retry": {"max_attempts": 0}}, key="interval")

    assert rejected.value.field == "set.retry.max_attempts"
    assert (await tenant.harebell.schedule(key="interval")).version == 1


@pytest.mark.long
@pytest.mark.measures
@pytest.mark.requirement("S28", "S30")
async def test_change_with_effective_time_takes_effect_then_and_shows_its_status(
    tenant: Tenant, target: Target, record_property: Callable[[str, object], None]
) -> None:
    start = time_in(2)
    at = start + 3 * SECOND
    await tenant.put("switching", every_second(start, 6), target.http("old"))

    response = await tenant.harebell.patch(
        {"target": target.http("new")}, key="switching", effective_at=at
    )
    before = {v.version: v for v in await tenant.harebell.versions(key="switching")}
    await tenant.until_runs(7, "succeeded")
    after = {v.version: v for v in await tenant.harebell.versions(key="switching")}

    assert (response.status, response.version, response.pending_version) == (
        "change_scheduled",
        1,
        2,
    )
    assert response.effective_at == at
    assert (before[1].in_force, before[2].in_force) == (True, False)
    assert (before[2].status, after[2].status) == ("pending", "active")
    assert after[2].in_force
    assert called(target, "old") == [start + k * SECOND for k in range(3)]
    assert called(target, "new") == [start + k * SECOND for k in range(3, 7)]
    late = [call.late for call in target.calls("new")]
    record_property("late", f"{1000 * late[0]:.0f} ms at the change, {1000 * late[1]:.0f} ms after")
    assert 0 <= min(late) <= max(late) < 2


@pytest.mark.requirement("S29")
async def test_superseded_or_late_change_shows_its_reason_and_the_old_version_continues(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("steady", {"every": "1h"}, target.http("never"))
    later = time_in(3600)
    await tenant.harebell.patch({"priority": 9}, key="steady", effective_at=later)

    with pytest.raises(CommandRejected) as rejected:
        await tenant.harebell.patch({"priority": 8}, key="steady", effective_at=time_in(-5))
    response = await tenant.harebell.patch({"priority": 7}, key="steady")
    versions = {v.version: v for v in await tenant.harebell.versions(key="steady")}

    assert (rejected.value.code, rejected.value.field) == ("not_in_future", "effective_at")
    assert response.version == 3
    assert (versions[2].status, versions[2].status_reason) == (
        "superseded",
        "replaced by version 3",
    )
    assert [versions[number].status for number in (1, 3)] == ["active", "active"]


@pytest.mark.long
@pytest.mark.requirement("S14", "ASK-10")
async def test_pause_with_an_end_ends_automatically(tenant: Tenant, target: Target) -> None:
    start = time_in(2)
    every_time = {"mode": "all"}
    when = every_second(start, 9)
    await tenant.put("pausing", when, target.http("pausing"), catch_up=every_time)
    await until_called(target, "pausing")

    end = time_in(3)
    response = await tenant.harebell.pause(key="pausing", until=end, note="a short break")
    await sleep_until(end - SECOND / 2)
    in_between = await tenant.harebell.schedule(key="pausing")
    calls = target.calls("pausing")
    await tenant.until_runs(10, "succeeded")

    assert (response.state, in_between.state) == ("paused", "paused")
    assert in_between.reason == "a short break"
    assert called(target, "pausing") == [start + k * SECOND for k in range(10)]
    assert len(calls) < 4, "The schedule ran during its pause."


@pytest.mark.requirement("ASK-10")
async def test_skipped_time_never_runs_and_the_other_times_run(
    tenant: Tenant, target: Target
) -> None:
    start = time_in(3)
    out = start + 2 * SECOND
    await tenant.put("skipping", every_second(start, 4), target.http("skipping"))

    response = await tenant.harebell.skip(out, key="skipping", note="stocktaking")
    await tenant.until_runs(4, "succeeded")

    assert response.status == "skipped"
    assert called(target, "skipping") == [start + k * SECOND for k in (0, 1, 3, 4)]
    (row,) = await tenant.runs("skipped")
    assert (row["scheduled_for"], row["reason"]) == (out, "manual")


async def test_backfill_previews_the_runs_and_then_runs_each_time_once(
    tenant: Tenant, target: Target
) -> None:
    start = time_in(-600).replace(microsecond=0)
    when = {"every": "60s", "start": start.isoformat()}
    await tenant.put("past", when, target.http("past"), catch_up={"mode": "none"})
    bounds = (start, start + 120 * SECOND)

    shown = await tenant.harebell.backfill(*bounds, key="past", dry_run=True)
    unshown = [run for run in await tenant.runs() if run["scheduled_for"] <= bounds[1]]
    done = await tenant.harebell.backfill(*bounds, key="past")
    await tenant.until_runs(3, "succeeded")
    await tenant.harebell.backfill(*bounds, key="past")
    with pytest.raises(CommandRejected) as rejected:
        await tenant.harebell.backfill(*bounds, key="past", max_runs=2)
    await tenant.harebell.cancel(key="past")

    assert (shown.status, done.status, unshown) == ("previewed", "backfilled", [])
    assert shown.runs == done.runs
    assert called(target, "past")[:3] == [start + 60 * k * SECOND for k in range(3)]
    assert len([call for call in target.calls("past") if call.scheduled_for <= bounds[1]]) == 3
    assert rejected.value.code == "too_many"


@pytest.mark.requirement("S107")
async def test_run_that_waits_for_its_retry_can_be_cancelled(
    tenant: Tenant, target: Target
) -> None:
    backoff = {"base": "1h", "jitter": "none", "cap": "1h"}
    hook = target.http("waiting", broken="waiting")
    await tenant.put("waiting", {"now": True}, hook, retry={"backoff": backoff})
    (retrying,) = await tenant.until_runs(1, "retrying")
    run = target.calls("waiting")[0].run_id

    response = await tenant.harebell.cancel_run(run, note="no longer needed")

    assert retrying["next_attempt_at"] > now() + timedelta(minutes=50)
    assert (response.status, response.state) == ("cancelled", "cancelled")
    row = await tenant.run(run)
    assert (row["state"], row["reason"], row["attempt"]) == ("cancelled", "cancelled", 1)


@pytest.mark.requirement("ASK-22")
async def test_bulk_resume_resumes_only_the_schedules_of_its_bulk_operation(
    tenant: Tenant, target: Target
) -> None:
    for key, tags in {"a": ["x"], "b": ["x", "y"], "c": ["y"], "d": ["x"]}.items():
        await tenant.put(key, {"every": "1h"}, target.http("never"), tags=tags)
    await tenant.harebell.pause(key="d", note="by someone else")

    paused = await tenant.harebell.pause_all({"tag": "x"}, request_id="upgrade")
    states = await states_of(tenant)
    repeated = await tenant.harebell.pause_all({"tag": "x"}, request_id="upgrade")
    resumed = await tenant.harebell.resume_all(request_id="upgraded", bulk_operation_id="upgrade")

    assert (paused.bulk_operation_id, len(paused.changed), repeated) == ("upgrade", 2, paused)
    assert states == {"a": "paused", "b": "paused", "c": "active", "d": "paused"}
    assert sorted(resumed.changed) == sorted(paused.changed)
    assert await states_of(tenant) == {"a": "active", "b": "active", "c": "active", "d": "paused"}


async def states_of(tenant: Tenant) -> dict[str, str]:
    return {str(each.key): each.state async for each in tenant.harebell.schedules()}


@pytest.mark.requirement("S31", "S114")
async def test_change_latency_is_observed_for_each_change(tenant: Tenant, target: Target) -> None:
    async def observations() -> float:
        plans = [tenant.stack.services.plan(ServiceKind.TICKER, number) for number in (1, 2)]
        members = [StartedService(plan.name, 0, plan.port) for plan in plans]
        return sum([await count_of(member, LATENCY) for member in members])

    before = await observations()
    await tenant.put("measured", {"every": "1h"}, target.http("never"))

    async def has_more() -> bool:
        return await observations() > before

    await until(has_more, what="an observation")
