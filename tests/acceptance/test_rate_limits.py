"""Limits, as the target counts: no span holds more starts, no attempt is spent, nobody waits."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import median

import pytest
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import WAIT_TIMEOUT, Tenant, time_in

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

WINDOW = timedelta(seconds=10)
STARTS = 5  # a second
LIMIT = {"per": "target", "starts": STARTS, "within": "1s"}
SCHEDULES, EACH = 12, 8  # which share the limit; runs of each

Record = Callable[[str, object], None]


def most_within(window: timedelta, calls: Sequence[Call]) -> int:
    started = sorted(call.started_at for call in calls)
    return max(sum(first <= each < first + window for each in started) for first in started)


@pytest.mark.requirement("S70", "ASK-12")
async def test_no_ten_seconds_hold_more_starts_than_the_limit_and_no_other_run_waits(
    tenant: Tenant, target: Target, record_property: Record
) -> None:
    """Two tickers, two dispatchers, two executors; all runs are due at one instant."""
    due = {"at": time_in(4).isoformat()}
    limited = [
        {"key": f"limited-{n}", "when": due, "limit": LIMIT, "target": target.http("limited")}
        for n in range(SCHEDULES * EACH)
    ]
    others = [
        {"key": f"other-{n}", "when": due, "target": target.http("other")} for n in range(SCHEDULES)
    ]
    responses = await tenant.harebell.put_many([*limited, *others])
    assert all(response.ok for response in responses)

    runs = await tenant.until_runs(len(responses), "succeeded", within=3 * WAIT_TIMEOUT)

    calls, free = target.calls("limited"), target.calls("other")
    last = max(call.started_at for call in free)
    held_up = sum(call.started_at < last for call in calls)
    record_property("most in 10 s", most_within(WINDOW, calls))
    record_property("late", f"the others {median(call.late for call in free):.2f} s")
    assert most_within(WINDOW, calls) <= STARTS * WINDOW.total_seconds()
    assert Counter(run["attempt"] for run in runs) == {1: len(responses)}
    assert len(calls) == len({call.run_id for call in calls}) == len(limited)
    assert min(call.late for call in calls) >= 0
    assert held_up < len(calls) / 2  # the others did not wait behind them


@pytest.mark.requirement("S70")
async def test_retries_count_as_starts(tenant: Tenant, target: Target) -> None:
    limit = {"per": "schedule", "starts": 3, "within": "1s"}
    retry = {"max_attempts": 3, "backoff": {"base": "50ms", "cap": "50ms"}}
    key = {"limit": limit, "retry": retry}
    await tenant.put("hourly", {"every": "1h"}, target.http("again", fail=2), **key)
    await asyncio.gather(
        *(tenant.harebell.trigger(key="hourly", request_id=f"once-{n}") for n in range(12))
    )

    runs = await tenant.until_runs(12, "succeeded", within=3 * WAIT_TIMEOUT)

    calls = target.calls("again")
    assert len(calls) == 3 * len(runs)
    assert {run["attempt"] for run in runs} == {3}
    assert most_within(WINDOW, calls) <= 3 * WINDOW.total_seconds()
