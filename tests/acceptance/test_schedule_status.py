"""The status of schedules with the real services: when they are completed and how they ended."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.faults import until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import WAIT_TIMEOUT, until

from harebell.client import ScheduleDetail
from harebell.contract.types import truncate_ms

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SINGLE_ATTEMPT = {"max_attempts": 1}
NOW = {"now": True}
# The run expires as if its ticket was lost and no recovery pass had found it.
OVERDUE = """
UPDATE runs SET due_at = now() - interval '2 minutes', staged_at = now() - interval '2 minutes',
                expires_at = now() - interval '1 minute'
WHERE schedule_id = $1
"""


async def status_of(tenant: Tenant, key: str) -> ScheduleDetail:
    return await tenant.harebell.schedule(key=key)


async def until_completed(tenant: Tenant, key: str) -> ScheduleDetail:
    async def is_completed() -> ScheduleDetail | None:
        shown = await status_of(tenant, key)
        return shown if shown.state == "completed" else None

    shown = await until(is_completed, what=f"{key} being completed")
    assert shown is not None
    return shown


async def next_event(events: "asyncio.Queue[dict[str, Any]]") -> dict[str, Any]:
    async with asyncio.timeout(WAIT_TIMEOUT):
        return await events.get()


def summary_of(schedule: ScheduleDetail) -> tuple[Any, ...]:
    last = schedule.last_run
    return schedule.result, last and last.state, schedule.executions, schedule.failures


@pytest.mark.long
@pytest.mark.requirement("S02", "S40")
async def test_one_shot_is_active_while_its_target_hangs_and_completed_after_the_end(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("slow", NOW, target.http("slow", sleep=10))
    await until_called(target, "slow", 1)

    during = await status_of(tenant, "slow")
    completed = [row.key async for row in tenant.harebell.schedules(state="completed")]
    still_running = await tenant.runs("running")
    after = await until_completed(tenant, "slow")

    assert still_running, "The reads took longer than the run."
    assert (during.state, during.result, during.next_at) == ("active", None, None)
    assert during.last_run is not None
    assert (during.last_run.state, during.last_run.finished_at) == ("running", None)
    assert completed == []
    assert summary_of(after) == ("succeeded", "succeeded", 1, 0)
    assert after.last_run is not None
    (run,) = await tenant.runs()
    assert after.last_run.started_at == truncate_ms(run["started_at"])
    assert after.last_run.finished_at == truncate_ms(run["finished_at"])
    assert after.last_run.scheduled_for == run["scheduled_for"]


@pytest.mark.requirement("S02", "S40")
async def test_one_shot_shows_that_its_run_died_expired_or_was_skipped(
    tenant: Tenant, target: Target
) -> None:
    failing = target.http("dying", broken="dying")
    await tenant.put("dead", NOW, failing, retry=SINGLE_ATTEMPT)
    expired = await tenant.put("expired", {"after": "30s"}, target.http("late"), expires_after="1s")
    await tenant.ledger.execute(OVERDUE, UUID(expired))
    await tenant.put("skipped", {"after": "20s"}, target.http("later"))
    at = (await status_of(tenant, "skipped")).next_at
    assert at is not None
    await tenant.harebell.skip(at, key="skipped")

    ended = {key: await until_completed(tenant, key) for key in ("dead", "expired", "skipped")}

    assert summary_of(ended["dead"]) == ("dead", "dead", 1, 1)
    assert summary_of(ended["expired"]) == ("expired", "expired", 0, 0)
    assert summary_of(ended["skipped"]) == ("skipped", "skipped", 0, 0)
    assert target.calls("late") == []


@pytest.mark.requirement("S06", "S40")
async def test_until_success_that_gave_up_is_completed_with_its_dead_run(
    tenant: Tenant, target: Target
) -> None:
    when = {"every": "1s", "times": 2, "until": "success"}
    hook = target.http("trying", broken="trying")
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        events = await amqp.events("schedule.completed")
        await tenant.put("trying", when, hook, retry=SINGLE_ATTEMPT)

        shown = await until_completed(tenant, "trying")
        event = await next_event(events)

    assert summary_of(shown) == ("dead", "dead", 2, 2)
    assert shown.next_at is None
    assert (event["data"]["state"], event["data"]["result"]) == ("completed", "dead")


@pytest.mark.long
@pytest.mark.requirement("S06", "S40")
async def test_counts_and_the_event_of_completion_are_those_of_the_ended_runs(
    tenant: Tenant, target: Target
) -> None:
    when = {"every": "1s", "times": 3}
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        events = await amqp.events("schedule.completed")
        await tenant.put("thrice", when, target.http("thrice", sleep=8))
        await until_called(target, "thrice", 3)
        during = await status_of(tenant, "thrice")
        running = await tenant.runs("running")

        shown = await until_completed(tenant, "thrice")
        event = await next_event(events)

    assert running, "The reads took longer than the runs."
    assert (during.state, during.next_at) == ("active", None)
    assert summary_of(shown) == ("succeeded", "succeeded", 3, 0)
    assert (event["data"]["state"], event["data"]["result"]) == ("completed", "succeeded")
