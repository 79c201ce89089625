"""The catch-up policies after a stop of four hours, for schedules that missed four times."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.acceptance.faults import assert_each_once, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

MISSED = 4  # hours, and scheduled times of each schedule

_SET_BACK = """
UPDATE schedule_state
SET next_at = next_at - make_interval(hours => $1),
    planned_until = planned_until - make_interval(hours => $1)
"""


@pytest.mark.requirement("ASK-6")
async def test_each_catch_up_policy_decides_the_missed_times_of_an_outage(
    own_stack: Stack, target: Target
) -> None:
    """Change the planning cursors as if no ticker had run for four hours."""
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0))
    ticker = await start(own_stack, ServiceKind.TICKER)
    half_past = now() - timedelta(minutes=30)
    an_hour_ago = now() - timedelta(hours=1)
    expected: dict[str, tuple[dict[str, Any], int]] = {  # the policy and its number of runs
        "none": ({"mode": "none"}, 0),
        "one": ({"mode": "one"}, 1),
        "all": ({"mode": "all"}, MISSED),
        "at-most-two": ({"mode": "all", "max": 2}, 2),
        "two-hours": ({"mode": "all", "window": "2h"}, 2),
        "not-after": ({"mode": "all", "not_after": f"{an_hour_ago:%H:%M}"}, 1),
    }
    async with own_stack.tenant("catch-up") as tenant:
        ids = {
            key: await tenant.put(
                key,
                {"cron": f"{half_past.minute} * * * *"},
                target.http("caught-up"),
                catch_up={"window": "24h", **policy},
            )
            for key, (policy, _) in expected.items()
        }
        own_stack.kill(ticker.name)
        await tenant.ledger.execute(_SET_BACK, MISSED)
        await start(own_stack, ServiceKind.TICKER)
        total = sum(runs for _, runs in expected.values())
        runs = await tenant.until_runs(total, "succeeded", within=60)
        skipped = await tenant.runs("skipped")
        oldest = await verdicts(tenant, list(ids), half_past - timedelta(hours=MISSED - 1))

    times = {key: times_of(runs, id_) for key, id_ in ids.items()}
    latest = [half_past.replace(second=0, microsecond=0) - timedelta(hours=n) for n in range(4)]
    assert times == {key: sorted(latest[:count]) for key, (_, count) in expected.items()}
    assert {
        key: sum(row["range_count"] for row in skipped if str(row["schedule_id"]) == id_)
        for key, id_ in ids.items()
    } == {key: MISSED - count for key, (_, count) in expected.items()}
    assert {row["reason"] for row in skipped} == {"missed"}
    assert oldest == {
        key: ("ran", None) if count == MISSED else ("did_not_run", "missed")
        for key, (_, count) in expected.items()
    }
    assert_each_once(target.calls("caught-up"), runs, total)


def times_of(runs: list[Any], schedule_id: str) -> list[datetime]:
    return [run["scheduled_for"] for run in runs if str(run["schedule_id"]) == schedule_id]


async def verdicts(
    tenant: Tenant, keys: list[str], near: datetime
) -> dict[str, tuple[str, str | None]]:
    """Return the verdict and the reason of `why` for the scheduled time in the minute `near`."""
    at = near.replace(second=0, microsecond=0)
    found = {key: await tenant.harebell.why(key=key, at=at) for key in keys}
    return {key: (each.verdict, each.reason) for key, each in found.items()}
