"""Many one-shot runs through two of every service: each once, on time."""

import asyncio
import logging
from collections import Counter
from datetime import timedelta

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import POLL_INTERVAL, Stack, Tenant, time_in

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RUNS = 1_000
SPACING = timedelta(milliseconds=20)
AHEAD = 6.0  # seconds from now to the first
PORTION = 500  # schedules of one message


async def watch_tiers(stack: Stack, seen: Counter[str]) -> None:
    """Until cancelled: the most messages that were in each."""
    while True:
        seen |= Counter(await asyncio.to_thread(stack.delay_queue_depths))
        await asyncio.sleep(POLL_INTERVAL)


async def put_all(tenant: Tenant, target: Target, path: str) -> list[str]:
    first = time_in(AHEAD)
    schedules = [
        {
            "key": f"one-{number}",
            "when": {"at": (first + number * SPACING).isoformat()},
            "target": target.http(path),
        }
        for number in range(RUNS)
    ]
    ids: list[str] = []
    for start in range(0, RUNS, PORTION):
        responses = await tenant.harebell.put_many(schedules[start : start + PORTION])
        ids += [str(response.id) for response in responses if response.ok]
    return ids


@pytest.mark.requirement("S01", "S65", "S77")
async def test_a_thousand_runs_over_20_s_run_once_each_never_early_and_soon_after_them(
    tenant: Tenant, target: Target
) -> None:
    waited: Counter[str] = Counter()
    watching = asyncio.create_task(watch_tiers(tenant.stack, waited))

    ids = await put_all(tenant, target, "punctual")
    await tenant.until_runs(RUNS, "succeeded", within=90)
    watching.cancel()

    calls = target.calls("punctual")
    late = sorted(call.late for call in calls)
    shares = {share: late[int(RUNS * share / 100)] for share in (50, 99, 99.9)}
    told = ", ".join(f"p{share:g} {seconds * 1e3:.1f} ms" for share, seconds in shares.items())
    log.info("late %s; in tiers %s", told, dict(waited))
    assert Counter(call.schedule_id for call in calls) == Counter(ids)
    assert len(set(ids)) == RUNS
    assert late[0] >= 0
    assert shares[99] < 2
    assert shares[99.9] < 5
    assert waited, "no message was seen in a harebell.delay queue"
    assert len(await tenant.runs()) == RUNS
