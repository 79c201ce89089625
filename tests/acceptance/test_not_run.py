"""Required runs that do not execute: each has a row with its reason, an event and a count."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.faults import Pool, count_of, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, run_id, time_in
from tests.rig.polling import WAIT_TIMEOUT

from harebell.dev.local_services import StartedService
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

DUE_IN = 45.0  # seconds, within the horizon and after the end of the test
HOUR = timedelta(hours=1)
TARGET = {"task": {"name": "harebell.echo"}}
KEY = "not-run"

EventQueue: TypeAlias = "asyncio.Queue[dict[str, Any]]"


@pytest.fixture
async def events(tenant: Tenant) -> AsyncIterator[EventQueue]:
    """Yield the queue of the run events of this tenant."""
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        yield await amqp.events("run.*")


async def counted(stack: Stack, state: str, reason: str) -> float:
    """Return the count of both tickers."""
    metric = re.escape(f'harebell_runs_total{{reason="{reason}",state="{state}"}}')
    plans = [stack.services.plan(ServiceKind.TICKER, number) for number in (1, 2)]
    return sum([await count_of(StartedService(plan.name, 0, plan.port), metric) for plan in plans])


async def put_once(tenant: Tenant, **more: Any) -> tuple[str, datetime]:
    """Put a schedule with one staged run and return its id and the scheduled time."""
    due_at = time_in(DUE_IN)
    when = {"at": due_at.isoformat()}
    id_ = await tenant.put(KEY, when, TARGET, **more)
    await tenant.until_runs(1, "staged")
    return id_, due_at


async def skip(tenant: Tenant) -> str:
    id_, due_at = await put_once(tenant)
    await tenant.harebell.skip(due_at, key=KEY)
    return run_id(id_, due_at)


async def cancel(tenant: Tenant) -> str:
    id_, due_at = await put_once(tenant)
    await tenant.harebell.cancel(key=KEY)
    return run_id(id_, due_at)


async def pause(tenant: Tenant) -> str:
    id_, due_at = await put_once(tenant)
    await tenant.harebell.pause(key=KEY)
    return run_id(id_, due_at)


async def supersede(tenant: Tenant) -> str:
    id_, due_at = await put_once(tenant)
    later = {"at": (due_at + HOUR).isoformat()}
    await tenant.put(KEY, later, TARGET, expected_version="any")
    return run_id(id_, due_at)


async def expire(tenant: Tenant) -> str:
    """Let a run expire as if its ticket was lost and no recovery pass had found it."""
    id_, due_at = await put_once(tenant, expires_after="1s")
    await tenant.ledger.execute(
        "UPDATE runs SET due_at = now() - interval '2 minutes', staged_at = now() - interval '2 "
        "minutes', expires_at = now() - interval '1 minute' WHERE tenant = $1",
        tenant.name,
    )
    return run_id(id_, due_at)


async def miss(tenant: Tenant) -> str:
    """Put an hourly schedule as if no ticker had run for some hours.

    The scheduled times are half an hour from now, so that none becomes due during the test.
    """
    last = (time_in(0) - HOUR / 2).replace(second=0, microsecond=0)
    first = last - 3 * HOUR
    when = {"cron": f"{last.minute} * * * *"}
    id_ = await tenant.put(KEY, when, TARGET, catch_up={"mode": "none"})
    await tenant.ledger.execute(
        "UPDATE schedule_state SET next_at = $2, planned_until = $3 WHERE schedule_id = $1",
        id_,
        first,
        first - HOUR / 2,
    )
    return run_id(id_, first)


MISSED: Final = "missed"
AFTER_A_PASS: Final = pytest.param(MISSED, marks=pytest.mark.long)  # up to 30 s
KINDS: dict[str, tuple[Callable[[Tenant], Awaitable[str]], str, str]] = {
    "skipped": (skip, "skipped", "manual"),
    MISSED: (miss, "skipped", "missed"),
    "expired": (expire, "expired", "expired"),
    "superseded": (supersede, "cancelled", "superseded"),
    "cancelled": (cancel, "cancelled", "cancelled"),
    "paused": (pause, "cancelled", "paused"),
}


@pytest.mark.requirement("S76", "ASK-1")
@pytest.mark.parametrize("kind", [each for each in KINDS if each != MISSED] + [AFTER_A_PASS])
async def test_unexecuted_run_has_a_row_an_event_and_a_count(
    tenant: Tenant, events: EventQueue, kind: str
) -> None:
    prevent, state, reason = KINDS[kind]
    before = await counted(tenant.stack, state, reason)

    run = await prevent(tenant)
    async with asyncio.timeout(WAIT_TIMEOUT):
        event = await events.get()

    row, data = await tenant.run(run), event["data"]
    assert (row["state"], row["reason"]) == (state, reason)
    assert (data["run_id"], data["state"], data["reason"]) == (run, state, reason)
    assert data["attempt"] == row["attempt"] == 0
    assert row["finished_at"] is not None
    assert datetime.fromisoformat(data["finished_at"]) >= row["finished_at"]
    assert event["type"] == f"harebell.run.{state}.v1"
    assert await counted(tenant.stack, state, reason) > before


@pytest.mark.long
@pytest.mark.requirement("S76")
async def test_successive_missed_times_are_one_row_with_their_count(
    tenant: Tenant, events: EventQueue
) -> None:
    run = await miss(tenant)
    async with asyncio.timeout(WAIT_TIMEOUT):
        event = await events.get()

    rows = await tenant.runs("skipped")
    assert [row["range_count"] for row in rows] == [4]
    assert rows[0]["range_until"] - rows[0]["scheduled_for"] == 3 * HOUR
    assert event["data"]["run_id"] == run


@pytest.mark.long
@pytest.mark.requirement("ASK-1")
async def test_run_expires_without_a_dead_letter_when_it_waits_too_long_for_a_slot(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    await pool.start(HAREBELL_SLOTS_NORMAL="1")
    async with AmqpClient.open(pool.stack.amqp_url, faulty_tenant.name) as amqp:
        events = await amqp.events("run.expired")
        hook = target.http("one-slot", sleep=4)
        await faulty_tenant.put("long", {"now": True}, hook, pool=pool.name)
        await until_called(target, "one-slot")
        await faulty_tenant.put("late", {"now": True}, hook, pool=pool.name, expires_after="1s")
        async with asyncio.timeout(WAIT_TIMEOUT):
            event = await events.get()

    (row,) = await faulty_tenant.runs("expired")
    dead_letters = [each async for each in faulty_tenant.harebell.dead_letters(state="all")]
    assert event["data"]["run_id"] == run_id(str(row["schedule_id"]), row["scheduled_for"])
    assert (event["data"]["reason"], row["reason"]) == ("expired", "expired")
    assert (len(target.calls("one-slot")), dead_letters) == (1, [])
