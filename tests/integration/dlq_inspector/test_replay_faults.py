"""An inspector that is killed at any step of a replay: each once, or still on the desk."""

import asyncio
import signal
import sys
from collections import Counter
from typing import Final
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import TIMEOUT, DlqEnvironment
from tests.integration.dlq_inspector.test_replay_jobs import ALL, order, start, until

from harebell.dlq_inspector.model.replay_job import BATCH

MANY: Final = 2 * BATCH
STEPS: Final = (  # a kill at each, of the first batch and of the second
    *("replay_taken", "replay_published", "replay_committed"),
    *("replay_published", "replay_taken"),
)
_STANDING = """
SELECT run.replay_number, letter.state, run.state AS run_state, item.status, count(replays) AS replays
FROM dead_letters AS letter
JOIN runs AS run
    ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
JOIN replay_items AS item ON item.dead_letter_id = letter.id
LEFT JOIN replays ON replays.dead_letter_id = letter.id
GROUP BY 1, 2, 3, 4, letter.id
"""


@pytest.mark.requirement("ASK-2")
async def test_an_inspector_killed_at_every_step_replays_each_exactly_once(
    environment: DlqEnvironment,
) -> None:
    for number in range(MANY):
        await environment.add_dead_run(number)
    async with environment.running_inspector():
        await environment.wait_for_dead_letters(MANY)
        job = await paused(environment)

    for step in STEPS:
        await environment.database.execute("UPDATE replay_jobs SET state = 'running', due_at = now()")
        await killed_at(environment, f"dlq_inspector.{step}")
        standing = await standings(environment)
        # each is replayed, with all that belongs to it, or it is open as if nothing had been
        assert set(standing) <= {
            (2, "replayed", "staged", "replayed", 1),
            (1, "open", "dead", "waiting", 0),
        }
        assert sum(standing.values()) == MANY

    async with environment.running_inspector():
        await until(environment, job, taken=MANY, replayed=MANY)
        await environment.database.execute("UPDATE runs SET state = 'succeeded'")
        await until(environment, job, state="done", succeeded=MANY, failed=0)
    assert await standings(environment) == {(2, "replayed", "succeeded", "replayed", 1): MANY}


async def paused(environment: DlqEnvironment) -> UUID:
    """Paused when it has hardly begun."""
    job = await start(environment, select=ALL, rate=0.001)
    await order(environment, "pause", job=str(job))
    await environment.database.execute("UPDATE replay_jobs SET rate = NULL")
    return job


async def killed_at(environment: DlqEnvironment, failpoint: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harebell.dlq_inspector"),
        env={**environment.process_variables(), "HAREBELL_FAILPOINT": f"{failpoint}:kill"},
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            assert await process.wait() == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()


async def standings(environment: DlqEnvironment) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in await environment.database.fetch(_STANDING))
