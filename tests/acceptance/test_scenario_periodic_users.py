"""Scenario: 10,000 users with five HTTP tasks each, who change their frequency at any time."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now, time_in
from tests.rig.polling import until

from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

USERS: Final = 10_000
TASKS: Final = 5  # schedules of each user
PERIOD: Final = timedelta(minutes=5)
SPACING: Final = PERIOD / (USERS * TASKS)  # between two schedules: 167 runs a second
BATCH: Final = 500  # schedules in one message
BATCHES_IN_FLIGHT: Final = 4
ACCEPT_SECONDS: Final = 120  # until the first scheduled time, on a busy machine
OBSERVED: Final = timedelta(seconds=60)
CHANGED_USERS: Final = 100
CHANGES_IN_FLIGHT: Final = 10
FAST: Final = timedelta(seconds=10)
CLOCK_TOLERANCE: Final = timedelta(seconds=1)  # between this process and intake
MAX_LATENESS_P99: Final = 2.0  # seconds
OPEN_RUNS: Final = """
SELECT count(*) FROM runs WHERE tenant = $1 AND scheduled_for <= $2
AND state NOT IN ('succeeded', 'dead', 'expired', 'skipped', 'cancelled')
"""

Record = Callable[[str, object], None]


@dataclass(frozen=True, kw_only=True)
class Change:
    """An acknowledged change of a schedule to `FAST`, with its first new scheduled time."""

    requested_at: datetime
    acknowledged_at: datetime
    first_new_time: datetime


async def put_users(tenant: Tenant, target: Target, start: datetime) -> dict[UUID, datetime]:
    """Put the schedules of all users and return the first scheduled time by schedule id."""
    hook = target.http("users")
    anchors: dict[UUID, datetime] = {}
    slots = asyncio.Semaphore(BATCHES_IN_FLIGHT)

    async def put(first: int) -> None:
        numbers = range(first, first + BATCH)
        times = [truncated(start + number * SPACING) for number in numbers]
        schedules: list[dict[str, Any]] = [
            {
                "key": f"user-{number // TASKS}/task-{number % TASKS}",
                "owner": f"user-{number // TASKS}",
                "when": {"every": "5m", "start": time.isoformat()},
                "target": hook,
            }
            for number, time in zip(numbers, times, strict=True)
        ]
        async with slots:
            responses = await tenant.harebell.put_many(schedules)
        for response, time in zip(responses, times, strict=True):
            assert response.ok, response
            anchors[response.id] = time

    async with asyncio.TaskGroup() as group:
        for first in range(0, USERS * TASKS, BATCH):
            group.create_task(put(first))
    return anchors


def truncated(time: datetime) -> datetime:
    """Return the time in whole milliseconds, like each scheduled time."""
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


async def change_users(tenant: Tenant) -> dict[UUID, Change]:
    """Change every schedule of some users to `FAST`, and return the changes by schedule id."""
    changes: dict[UUID, Change] = {}
    slots = asyncio.Semaphore(CHANGES_IN_FLIGHT)

    async def change(key: str) -> None:
        async with slots:
            requested_at = now()
            response = await tenant.harebell.patch({"when": {"every": "10s"}}, key=key)
            changes[response.id] = Change(
                requested_at=requested_at,
                acknowledged_at=now(),
                first_new_time=response.next_at[0],
            )

    step = USERS // CHANGED_USERS
    async with asyncio.TaskGroup() as group:
        for user in range(0, USERS, step):
            for task in range(TASKS):
                group.create_task(change(f"user-{user}/task-{task}"))
    return changes


async def states(tenant: Tenant, end: datetime) -> set[str]:
    """Return the states of the runs until `end` that a change has not cancelled."""
    rows = await tenant.ledger.fetch(
        "SELECT DISTINCT state FROM runs WHERE tenant = $1 AND scheduled_for <= $2 "
        "AND state <> 'cancelled'",
        tenant.name,
        end,
    )
    return {row["state"] for row in rows}


async def run_times(tenant: Tenant, end: datetime) -> dict[UUID, list[datetime]]:
    """Return the scheduled times of the succeeded runs until `end`, by schedule id."""
    times: defaultdict[UUID, list[datetime]] = defaultdict(list)
    for row in await tenant.ledger.fetch(
        "SELECT schedule_id, scheduled_for FROM runs WHERE tenant = $1 AND scheduled_for <= $2 "
        "AND state = 'succeeded' ORDER BY scheduled_for",
        tenant.name,
        end,
    ):
        times[row["schedule_id"]].append(row["scheduled_for"])
    return times


def every(first: datetime, interval: timedelta, end: datetime) -> list[datetime]:
    """Return the times from `first` until `end`, both inclusive, without Harebell."""
    count = (end - first) // interval + 1
    return [first + k * interval for k in range(max(0, count))]


async def until_all_ended(tenant: Tenant, end: datetime) -> None:
    """Wait until every run that is scheduled until `end` has ended."""

    async def is_done() -> bool:
        open_runs: int = await tenant.ledger.fetchval(OPEN_RUNS, tenant.name, end)
        return open_runs == 0

    await until(is_done, within=60, what="the end of every run")


@pytest.mark.measures
@pytest.mark.requirement("S05", "S10", "S77", "S121")
async def test_fifty_thousand_schedules_of_ten_thousand_users_follow_live_changes(
    own_stack: Stack, target: Target, record_property: Record
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(executors=2))
    async with own_stack.tenant("users") as tenant:
        start = time_in(ACCEPT_SECONDS)
        anchors = await put_users(tenant, target, start)
        accepted_in = ACCEPT_SECONDS - (start - now()).total_seconds()
        await asyncio.sleep(max(0.0, (start + OBSERVED / 4 - now()).total_seconds()))
        changes = await change_users(tenant)
        end = start + OBSERVED
        await asyncio.sleep(max(0.0, (end - now()).total_seconds()))
        await until_all_ended(tenant, end)
        times = await run_times(tenant, end)
        ends = await states(tenant, end)

    late = sorted(call.late for call in target.calls("users") if call.scheduled_for <= end)
    record_property("accepted", f"{USERS * TASKS} schedules in {accepted_in:.1f} s")
    record_property("late", f"p99 {1000 * percentile_99(late):.0f} ms of {len(late)} runs")
    assert len(anchors) == USERS * TASKS
    assert ends == {"succeeded"}
    assert len(changes) == CHANGED_USERS * TASKS
    for schedule, anchor in anchors.items():
        if schedule not in changes:
            assert times.get(schedule, []) == every(anchor, PERIOD, end), schedule
    for schedule, change in changes.items():
        assert_changed(times.get(schedule, []), anchors[schedule], change, end)
    calls = [call.run_id for call in target.calls("users")]
    assert len(set(calls)) == len(calls), "a run was called twice"
    assert late[0] >= 0, "a run started early"
    assert percentile_99(late) < MAX_LATENESS_P99


def assert_changed(
    times: Sequence[datetime], anchor: datetime, change: Change, end: datetime
) -> None:
    """Assert the old times before the change, the new times after it, and no other time."""
    new = every(change.first_new_time, FAST, end)
    old = [time for time in times if time not in new]
    assert [time for time in times if time in new] == new
    certain = every(anchor, PERIOD, change.requested_at - CLOCK_TOLERANCE)
    possible = every(anchor, PERIOD, change.acknowledged_at)
    assert old in (certain, possible)


def percentile_99(ordered: Sequence[float]) -> float:
    return ordered[len(ordered) * 99 // 100]
