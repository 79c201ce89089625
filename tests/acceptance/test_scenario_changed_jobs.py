"""Scenario: HTTP jobs whose customers change them at a stated time, or too late, or again."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from tests.acceptance.faults import until_dead
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now, time_in

from harebell.client import CommandRejected, VersionView
from harebell.dev.plan import ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

SECOND: Final = timedelta(seconds=1)
LAST: Final = 40  # runs of each job after the first, one each second
TICKERS: Final = 2


def job(target: Target, path: str, start: datetime) -> dict[str, Any]:
    return {
        "when": {
            "every": "1s",
            "start": start.isoformat(),
            "end": (start + LAST * SECOND).isoformat(),
        },
        "target": target.http(path),
    }


async def put(tenant: Tenant, key: str, target: Target, start: datetime) -> None:
    await tenant.harebell.put({"key": key, **job(target, f"{key}-old", start)})


async def change(tenant: Tenant, key: str, target: Target, name: str, at: datetime) -> int | None:
    """Change the target of a job from `at` on, and return the number of the pending version."""
    response = await tenant.harebell.patch(
        {"target": target.http(f"{key}-{name}")}, key=key, effective_at=at
    )
    return response.pending_version


def times(target: Target, path: str) -> list[datetime]:
    return sorted(call.scheduled_for for call in target.calls(path))


def seconds(start: datetime, first: int, end: int) -> list[datetime]:
    """Return one time each second from the second `first` until before the second `end`."""
    return [start + second * SECOND for second in range(first, end)]


async def sleep_until(time: datetime) -> None:
    await asyncio.sleep(max(0.0, (time - now()).total_seconds()))


async def versions(tenant: Tenant, key: str) -> dict[int, VersionView]:
    return {view.version: view for view in await tenant.harebell.versions(key=key)}


@pytest.mark.requirement("S28", "S29", "S30", "S76")
async def test_each_change_takes_effect_at_its_time_or_says_why_not_while_a_ticker_dies(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=TICKERS, executors=2))
    start = time_in(12)
    async with own_stack.tenant("customers") as tenant:
        for key in ("twice", "late", "replaced", "outage", "unchanged"):
            await put(tenant, key, target, start)

        first = await change(tenant, "twice", target, "first", start + 10 * SECOND)
        second = await change(tenant, "twice", target, "second", start + 20 * SECOND)
        with pytest.raises(CommandRejected) as too_late:
            await change(tenant, "late", target, "new", now() - SECOND)
        superseded = await change(tenant, "replaced", target, "never", start + 30 * SECOND)
        replacing = await change(tenant, "replaced", target, "new", start + 30 * SECOND)
        missing = await change(tenant, "outage", target, "new", start + 25 * SECOND)

        await sleep_until(start + 15 * SECOND)
        for number in range(1, TICKERS + 1):
            own_stack.kill(name_of(ServiceKind.TICKER, number))
            await until_dead(own_stack, name_of(ServiceKind.TICKER, number))
        await sleep_until(start + 18 * SECOND)
        await asyncio.to_thread(own_stack.start_one, ServiceKind.TICKER, 1)
        await sleep_until(start + LAST * SECOND)
        await tenant.until_runs(5 * (LAST + 1), "succeeded")
        shown = {
            key: await versions(tenant, key) for key in ("twice", "late", "replaced", "outage")
        }

    assert (first, second) == (2, 3)
    assert times(target, "twice-old") == seconds(start, 0, 10)
    assert times(target, "twice-first") == seconds(start, 10, 20)
    assert times(target, "twice-second") == seconds(start, 20, LAST + 1)
    assert [shown["twice"][number].status for number in (1, 2, 3)] == ["active"] * 3
    assert [shown["twice"][number].in_force for number in (1, 2, 3)] == [False, False, True]

    assert (too_late.value.code, too_late.value.field) == ("not_in_future", "effective_at")
    assert list(shown["late"]) == [1]
    assert times(target, "late-old") == seconds(start, 0, LAST + 1)

    assert superseded is not None
    assert replacing is not None
    assert shown["replaced"][superseded].status == "superseded"
    assert shown["replaced"][superseded].status_reason == f"replaced by version {replacing}"
    assert times(target, "replaced-never") == []
    assert times(target, "replaced-old") == seconds(start, 0, 30)
    assert times(target, "replaced-new") == seconds(start, 30, LAST + 1)

    assert missing is not None
    assert shown["outage"][missing].status == "active"
    assert times(target, "outage-old") == seconds(start, 0, 25)
    assert times(target, "outage-new") == seconds(start, 25, LAST + 1)
    assert times(target, "unchanged-old") == seconds(start, 0, LAST + 1)
