"""The status of schedules with the real services: how they ended."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import WAIT_TIMEOUT, until

from harebell.client import ScheduleDetail

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
