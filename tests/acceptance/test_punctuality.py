"""A thousand one-shot runs with two instances of each service: one call each, on time."""

import asyncio
import logging
from collections import Counter
from datetime import timedelta

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.rig.polling import POLL_INTERVAL

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RUNS = 1_000
SPACING = timedelta(milliseconds=20)
FIRST_DUE = 6.0  # seconds
BATCH_SIZE = 500  # schedules in one message


async def watch_delay_queues(stack: Stack, max_depths: Counter[str]) -> None:
    """Record the maximum depth of each delay queue until the task is cancelled."""
    while True:
        max_depths |= Counter(await asyncio.to_thread(stack.delay_queue_depths))
        await asyncio.sleep(POLL_INTERVAL)


async def put_all(tenant: Tenant, target: Target, path: str) -> list[str]:
    first = time_in(FIRST_DUE)
    schedules = [
        {
            "key": f"one-{number}",
            "when": {"at": (first + number * SPACING).isoformat()},
            "target": target.http(path),
        }
        for number in range(RUNS)
    ]
    ids: list[str] = []
    for start in range(0, RUNS, BATCH_SIZE):
        responses = await tenant.harebell.put_many(schedules[start : start + BATCH_SIZE])
        ids += [str(response.id) for response in responses if response.ok]
    return ids


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S01", "S65", "S77")
async def test_thousand_runs_over_20_s_run_once_on_time_and_never_early(
    tenant: Tenant, target: Target
) -> None:
    max_depths: Counter[str] = Counter()
    watching = asyncio.create_task(watch_delay_queues(tenant.stack, max_depths))

    ids = await put_all(tenant, target, "punctual")
    await tenant.until_runs(RUNS, "succeeded", within=90)
    watching.cancel()

    calls = target.calls("punctual")
    late = sorted(call.late for call in calls)
    shares = {share: late[int(RUNS * share / 100)] for share in (50, 99, 99.9)}
    percentiles = ", ".join(
        f"p{share:g} {seconds * 1e3:.1f} ms" for share, seconds in shares.items()
    )
    log.info("lateness %s; delay queues %s", percentiles, dict(max_depths))
    assert Counter(call.schedule_id for call in calls) == Counter(ids)
    assert len(set(ids)) == RUNS
    assert late[0] >= 0
    assert shares[99] < 2
    assert shares[99.9] < 5
    assert max_depths, "No delay queue contained a message."
    assert len(await tenant.runs()) == RUNS
