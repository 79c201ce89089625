"""The inspector killed again and again in a replay of 1,000: each once, or still on the desk."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, until

from harebell.client import ReplayJobDetail
from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

MANY: Final = 1_000  # letters
PUT_AT_ONCE: Final = 500
RATE: Final = 60.0  # replays a second: it must last longer than the kills
INSPECTOR: Final = f"{ServiceKind.DLQ_INSPECTOR}-1"
STEPS: Final = (  # a kill at each, of one batch and of the next
    *("replay_taken", "replay_published", "replay_committed"),
    *("replay_published", "replay_taken"),
)
AT_RANDOM: Final = 3  # kills more, at no step in particular
LONGEST: Final = 1.0  # seconds of work before one of these
DEATH: Final = 60.0  # seconds to start, come to a step, and die
OVER: Final = 120.0  # seconds for what is left
ONCE: Final = {"max_attempts": 1}

# A letter, its item in the replay, how often it was replayed, and whether its run has begun again.
_STANDING = """
SELECT letter.state, item.status, run.replay_number, count(replays) AS replays
FROM dead_letters AS letter
JOIN runs AS run
    ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
JOIN replay_items AS item ON item.dead_letter_id = letter.id
LEFT JOIN replays ON replays.dead_letter_id = letter.id
WHERE letter.tenant = $1
GROUP BY letter.id, 1, 2, 3
"""
REPLAYED: Final = ("replayed", "replayed", 2, 1)
ON_THE_DESK: Final = ("open", "waiting", 1, 0)


@pytest.fixture
async def many(own_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    own_stack.start(ServiceCounts())
    async with own_stack.tenant(name_of_test) as tenant:
        yield tenant


@pytest.mark.requirement("ASK-2")
async def test_killed_at_every_step_of_a_thousand_each_is_replayed_once(
    many: Tenant, target: Target
) -> None:
    await all_die(many, target)
    target.fix("all")
    response = await many.harebell.start_replay_job(select={"all": True}, rate=RATE, request_id="r-1")
    many.stack.kill(INSPECTOR)

    for step in STEPS:
        await killed_at(many.stack, f"dlq_inspector.{step}")
        await each_is_replayed_once_or_on_the_desk(many)
    for _ in range(AT_RANDOM):
        await killed_at_random(many.stack)
        await each_is_replayed_once_or_on_the_desk(many)
    many.stack.start_one(ServiceKind.DLQ_INSPECTOR)
    done = await over(many, response.id)

    assert (response.total, done.succeeded, done.failed) == (MANY, MANY, 0)
    assert await standings(many) == {REPLAYED: MANY}
    well = Counter(call.run_id for call in target.calls("again") if call.ok)
    assert (len(well), set(well.values())) == (MANY, {1})


async def all_die(many: Tenant, target: Target) -> None:
    hook = target.http("again", broken="all")
    items = [
        {"key": f"again-{n}", "when": {"now": True}, "target": hook, "retry": ONCE}
        for n in range(MANY)
    ]
    for start in range(0, MANY, PUT_AT_ONCE):
        await many.harebell.put_many(items[start : start + PUT_AT_ONCE])
    count = "SELECT count(*) FROM dead_letters WHERE tenant = $1"

    async def dead() -> bool:
        return bool(await many.ledger.fetchval(count, many.name) == MANY)

    await until(dead, within=OVER, what=f"{MANY} dead letters")


async def killed_at(stack: Stack, step: str) -> None:
    stack.start_one(ServiceKind.DLQ_INSPECTOR, ready=False, HAREBELL_FAILPOINT=f"{step}:kill")
    await until(lambda: gone(stack), within=DEATH, what=f"a kill at {step}")


async def killed_at_random(stack: Stack) -> None:
    stack.start_one(ServiceKind.DLQ_INSPECTOR)
    await asyncio.sleep(random.uniform(0, LONGEST))  # noqa: S311  # no secret
    stack.kill(INSPECTOR)


async def gone(stack: Stack) -> bool:
    process = stack.services.process(INSPECTOR)
    return process is None or not process.is_running


async def each_is_replayed_once_or_on_the_desk(many: Tenant) -> None:
    standing = await standings(many)
    assert set(standing) <= {REPLAYED, ON_THE_DESK}
    assert sum(standing.values()) == MANY


async def standings(many: Tenant) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in await many.ledger.fetch(_STANDING, many.name))


async def over(many: Tenant, job: UUID | None) -> ReplayJobDetail:
    async def done() -> ReplayJobDetail | None:
        shown = await many.harebell.replay_job(job or "")
        return shown if shown.state == "done" else None

    found = await until(done, within=OVER, what="the end of the replay")
    assert found is not None
    return found
