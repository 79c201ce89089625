"""Replay jobs replay each dead letter exactly once, although processes are killed."""

from collections import Counter
from typing import Final
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import DlqEnvironment
from tests.integration.dlq_inspector.test_replay_jobs import ALL, send, start_job, wait_for_job

from harebell.dlq_inspector.model.replay_job import MAX_BATCH

DEAD_RUNS: Final = 2 * MAX_BATCH
STEPS: Final = (  # the first three in the first batch, the others in the second
    "replay_taken",
    "replay_published",
    "replay_committed",
    "replay_published",
    "replay_taken",
)
_COUNT_STATES = """
SELECT run.replay_number, dead_letter.state, run.state AS run_state, item.status,
    count(replays) AS replays
FROM dead_letters AS dead_letter
JOIN runs AS run
    ON run.scheduled_for = dead_letter.scheduled_for
    AND run.schedule_id = dead_letter.schedule_id
JOIN replay_items AS item ON item.dead_letter_id = dead_letter.id
LEFT JOIN replays ON replays.dead_letter_id = dead_letter.id
GROUP BY 1, 2, 3, 4, dead_letter.id
"""


@pytest.mark.long
@pytest.mark.requirement("ASK-2")
async def test_job_replays_each_dead_letter_once_after_kills_at_every_step(
    environment: DlqEnvironment,
) -> None:
    for number in range(DEAD_RUNS):
        await environment.add_dead_run(number)
    async with environment.running_inspector():
        await environment.wait_for_dead_letters(DEAD_RUNS)
        job = await start_paused_job(environment)

    for step in STEPS:
        await environment.database.execute(
            "UPDATE replay_jobs SET state = 'running', next_check_at = now()"
        )
        await environment.run_until_killed(f"dlq_inspector.{step}")
        states = await count_states(environment)
        # every row of a dead letter has changed, or none has
        assert set(states) <= {
            (1, "replayed", "staged", "replayed", 1),
            (0, "open", "dead", "waiting", 0),
        }
        assert sum(states.values()) == DEAD_RUNS

    async with environment.running_inspector():
        await wait_for_job(environment, job, taken=DEAD_RUNS, replayed=DEAD_RUNS)
        await environment.database.execute("UPDATE runs SET state = 'succeeded'")
        await wait_for_job(environment, job, state="done", succeeded=DEAD_RUNS, failed=0)
    assert await count_states(environment) == {
        (1, "replayed", "succeeded", "replayed", 1): DEAD_RUNS
    }


async def start_paused_job(environment: DlqEnvironment) -> UUID:
    """Start a job and pause it before its second dead letter."""
    job = await start_job(environment, select=ALL, rate=0.001)
    await send(environment, "pause", id=str(job))
    await environment.database.execute("UPDATE replay_jobs SET rate = NULL")
    return job


async def count_states(environment: DlqEnvironment) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in await environment.database.fetch(_COUNT_STATES))
