"""Kills of the dlq_inspector during a replay job of 1,000: each run once, or still open."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import until

from harebell.client import ReplayJobDetail
from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

DEAD_LETTERS: Final = 1_000
BATCH_SIZE: Final = 500
RATE: Final = 60.0  # replays a second: the replay job must last longer than the kills
INSPECTOR: Final = f"{ServiceKind.DLQ_INSPECTOR}-1"
STEPS: Final = (  # a kill at each step, of one batch and of the next batch
    "replay_taken",
    "replay_published",
    "replay_committed",
    "replay_published",
    "replay_taken",
)
RANDOM_KILLS: Final = 3  # kills at random times
MAX_WORK: Final = 1.0  # seconds of work before such a kill
KILL_TIMEOUT: Final = 60.0  # seconds to start, reach a step and end
REPLAY_TIMEOUT: Final = 120.0  # seconds for the remaining dead letters
SINGLE_ATTEMPT: Final = {"max_attempts": 1}

# The states of a dead letter, its item and its run, and the number of its replays.
_STATES = """
SELECT dead_letters.state, item.status, run.replay_number, count(replays) AS replays
FROM dead_letters
JOIN runs AS run
    ON run.scheduled_for = dead_letters.scheduled_for
    AND run.schedule_id = dead_letters.schedule_id
JOIN replay_items AS item ON item.dead_letter_id = dead_letters.id
LEFT JOIN replays ON replays.dead_letter_id = dead_letters.id
WHERE dead_letters.tenant = $1
GROUP BY dead_letters.id, 1, 2, 3
"""
REPLAYED: Final = ("replayed", "replayed", 1, 1)
WAITING: Final = ("open", "waiting", 0, 0)


@pytest.fixture
async def tenant(own_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    own_stack.start(ServiceCounts())
    async with own_stack.tenant(name_of_test) as tenant:
        yield tenant


@pytest.mark.requirement("ASK-2")
async def test_replay_job_replays_each_dead_letter_once_when_killed_at_every_step(
    tenant: Tenant, target: Target
) -> None:
    await create_dead_letters(tenant, target)
    target.fix("all")
    response = await tenant.harebell.start_replay_job(
        select={"all": True}, rate=RATE, request_id="r-1"
    )
    tenant.stack.kill(INSPECTOR)

    for step in STEPS:
        await kill_at(tenant.stack, f"dlq_inspector.{step}")
        await assert_replayed_once_or_waiting(tenant)
    for _ in range(RANDOM_KILLS):
        await kill_at_random_time(tenant.stack)
        await assert_replayed_once_or_waiting(tenant)
    tenant.stack.start_one(ServiceKind.DLQ_INSPECTOR)
    done = await until_done(tenant, response.id)

    assert (response.total, done.succeeded, done.failed) == (DEAD_LETTERS, DEAD_LETTERS, 0)
    assert await count_states(tenant) == {REPLAYED: DEAD_LETTERS}
    successful = Counter(call.run_id for call in target.calls("again") if call.ok)
    assert (len(successful), set(successful.values())) == (DEAD_LETTERS, {1})


async def create_dead_letters(tenant: Tenant, target: Target) -> None:
    hook = target.http("again", broken="all")
    items = [
        {"key": f"again-{n}", "when": {"now": True}, "target": hook, "retry": SINGLE_ATTEMPT}
        for n in range(DEAD_LETTERS)
    ]
    for start in range(0, DEAD_LETTERS, BATCH_SIZE):
        await tenant.harebell.put_many(items[start : start + BATCH_SIZE])
    count = "SELECT count(*) FROM dead_letters WHERE tenant = $1"

    async def dead() -> bool:
        return bool(await tenant.ledger.fetchval(count, tenant.name) == DEAD_LETTERS)

    await until(dead, within=REPLAY_TIMEOUT, what=f"{DEAD_LETTERS} dead letters")


async def kill_at(stack: Stack, step: str) -> None:
    stack.start_one(ServiceKind.DLQ_INSPECTOR, ready=False, HAREBELL_FAILPOINT=f"{step}:kill")
    await until(lambda: has_ended(stack), within=KILL_TIMEOUT, what=f"a kill at {step}")


async def kill_at_random_time(stack: Stack) -> None:
    stack.start_one(ServiceKind.DLQ_INSPECTOR)
    await asyncio.sleep(random.uniform(0, MAX_WORK))  # noqa: S311  # no secret
    stack.kill(INSPECTOR)


async def has_ended(stack: Stack) -> bool:
    process = stack.services.process(INSPECTOR)
    return process is None or not process.is_running


async def assert_replayed_once_or_waiting(tenant: Tenant) -> None:
    states = await count_states(tenant)
    assert set(states) <= {REPLAYED, WAITING}
    assert sum(states.values()) == DEAD_LETTERS


async def count_states(tenant: Tenant) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in await tenant.ledger.fetch(_STATES, tenant.name))


async def until_done(tenant: Tenant, replay_job: UUID | None) -> ReplayJobDetail:
    async def done() -> ReplayJobDetail | None:
        shown = await tenant.harebell.replay_job(replay_job or "")
        return shown if shown.state == "done" else None

    found = await until(done, within=REPLAY_TIMEOUT, what="the end of the replay job")
    assert found is not None
    return found
