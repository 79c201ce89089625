"""Rate limits: the target counts the starts. The limits use no attempt and delay no other run."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import median

import pytest
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, time_in
from tests.rig.polling import WAIT_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

WINDOW = timedelta(seconds=10)
STARTS_PER_SECOND = 5  # starts for each second
RATE_LIMIT = {"per": "target", "starts": STARTS_PER_SECOND, "within": "1s"}
SCHEDULES, RUNS_PER_SCHEDULE = 12, 8  # the schedules share the rate limit

Record = Callable[[str, object], None]


def max_starts_within(window: timedelta, calls: Sequence[Call]) -> int:
    started = sorted(call.started_at for call in calls)
    return max(sum(first <= each < first + window for each in started) for first in started)


@pytest.mark.long
@pytest.mark.requirement("S70", "ASK-12")
async def test_rate_limit_bounds_the_starts_of_each_window_and_delays_no_other_run(
    tenant: Tenant, target: Target, record_property: Record
) -> None:
    """Two instances of each service share the runs, which have one due time."""
    due = {"at": time_in(4).isoformat()}
    limited = [
        {
            "key": f"limited-{n}",
            "when": due,
            "rate_limit": RATE_LIMIT,
            "target": target.http("limited"),
        }
        for n in range(SCHEDULES * RUNS_PER_SCHEDULE)
    ]
    others = [
        {"key": f"other-{n}", "when": due, "target": target.http("other")} for n in range(SCHEDULES)
    ]
    responses = await tenant.harebell.put_many([*limited, *others])
    assert all(response.ok for response in responses)

    runs = await tenant.until_runs(len(responses), "succeeded", within=3 * WAIT_TIMEOUT)

    calls, other_calls = target.calls("limited"), target.calls("other")
    last = max(call.started_at for call in other_calls)
    calls_before_last = sum(call.started_at < last for call in calls)
    record_property("most in 10 s", max_starts_within(WINDOW, calls))
    record_property("late", f"the others {median(call.late for call in other_calls):.2f} s")
    assert max_starts_within(WINDOW, calls) <= STARTS_PER_SECOND * WINDOW.total_seconds()
    assert Counter(run["attempt"] for run in runs) == {1: len(responses)}
    assert len(calls) == len({call.run_id for call in calls}) == len(limited)
    assert min(call.late for call in calls) >= 0
    assert calls_before_last < len(calls) / 2  # the other runs did not wait behind the limited runs


@pytest.mark.long
@pytest.mark.requirement("S70")
async def test_retries_count_as_starts(tenant: Tenant, target: Target) -> None:
    rate_limit = {"per": "schedule", "starts": 3, "within": "1s"}
    retry = {"max_attempts": 3, "backoff": {"base": "50ms", "cap": "50ms"}}
    options = {"rate_limit": rate_limit, "retry": retry}
    await tenant.put("hourly", {"every": "1h"}, target.http("again", fail=2), **options)
    await asyncio.gather(
        *(tenant.harebell.trigger(key="hourly", request_id=f"once-{n}") for n in range(12))
    )

    runs = await tenant.until_runs(12, "succeeded", within=3 * WAIT_TIMEOUT)

    calls = target.calls("again")
    assert len(calls) == 3 * len(runs)
    assert {run["attempt"] for run in runs} == {3}
    assert max_starts_within(WINDOW, calls) <= 3 * WINDOW.total_seconds()
