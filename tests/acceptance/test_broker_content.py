"""The tickets in the broker: runs within the horizon, and retries of the next 15 minutes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now
from tests.rig.polling import until

from harebell.contract.amqp_names import DELAY, DUE
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_key

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HORIZON = timedelta(seconds=84)  # the default
NEAR, FAR = 8, 40  # schedules that are due within the horizon, and after it
STEP = 10  # seconds between the due times of the near schedules
FIRST_FAR = 200  # seconds
RETRY_IN_BROKER, RETRY_IN_DATABASE = "14m", "16m"  # of which the first is below 15 minutes


@dataclass(frozen=True, kw_only=True)
class SeenTicket:
    """One ticket on its way to a delay queue or to the dispatcher, with the time of its arrival."""

    schedule_id: str
    due_at: datetime
    seq: int
    arrived_at: datetime


@asynccontextmanager
async def tickets_of(tenant: Tenant) -> AsyncIterator[list[SeenTicket]]:
    """Yield a list that receives each later ticket of the tenant."""
    seen: list[SeenTicket] = []

    async def collect(message: AbstractIncomingMessage) -> None:
        seen.extend(
            SeenTicket(
                schedule_id=each["schedule_id"],
                due_at=datetime.fromisoformat(each["due_at"]),
                seq=each["seq"],
                arrived_at=now(),
            )
            for each in orjson.loads(message.body)
            if each["run_spec"]["tenant"] == tenant.name
        )

    async with await aio_pika.connect(tenant.stack.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for ttl_ms in DELAY_TTLS_MS:
            await queue.bind(DELAY, delay_queue_key(ttl_ms))
        await queue.bind(DUE, "#")
        await queue.consume(collect, no_ack=True)
        yield seen


@pytest.mark.requirement("S36")
async def test_broker_has_tickets_only_of_runs_within_the_horizon_and_of_early_retries(
    tenant: Tenant, target: Target
) -> None:
    near_offsets = [STEP * number for number in range(1, NEAR + 1)]
    far_offsets = [FIRST_FAR * number for number in range(1, FAR + 1)]
    assert near_offsets[-1] < HORIZON.total_seconds() < FIRST_FAR
    async with tickets_of(tenant) as seen:
        ids = await put_after(tenant, target, near_offsets + far_offsets)
        near, far = set(ids[:NEAR]), set(ids[NEAR:])
        soon, later = [
            await put_failing(tenant, target, wait) for wait in (RETRY_IN_BROKER, RETRY_IN_DATABASE)
        ]
        await tenant.until_runs(2, "retrying")

        async def has_retry() -> bool:
            return any(each.schedule_id == soon and each.seq > 1 for each in seen)

        await until(has_retry, what="the ticket of the retry")
    runs = await tenant.runs()
    listed = {str(each.id) async for each in tenant.harebell.schedules()}

    retries = [each for each in seen if each.schedule_id in (soon, later) and each.seq > 1]
    planned = [each for each in seen if each not in retries]
    assert {each.schedule_id for each in planned} == near | {soon, later}
    assert all(each.due_at - each.arrived_at <= HORIZON for each in planned)
    assert {each.schedule_id for each in retries} == {soon}
    assert {str(run["schedule_id"]) for run in runs} == near | {soon, later}
    assert {
        str(run["schedule_id"]): bool(run["next_attempt_at"]) for run in runs if run["attempt"]
    } == {soon: True, later: True}
    assert listed == near | far | {soon, later}


async def put_after(tenant: Tenant, target: Target, offsets: list[int]) -> list[str]:
    """Put a schedule for each offset in seconds, and return the ids."""
    schedules: list[dict[str, Any]] = [
        {"key": f"after-{offset}", "when": {"after": f"{offset}s"}, "target": target.http("after")}
        for offset in offsets
    ]
    responses = await tenant.harebell.put_many(schedules)
    return [str(each.id) for each in responses if each.ok]


async def put_failing(tenant: Tenant, target: Target, wait: str) -> str:
    """Put a schedule whose run fails at once and waits for its retry, and return the id."""
    backoff = {"base": wait, "cap": "1h", "jitter": "none"}
    return await tenant.put(
        f"retry-{wait}",
        {"now": True},
        target.http("failing", fail=1),
        retry={"max_attempts": 2, "backoff": backoff},
    )
