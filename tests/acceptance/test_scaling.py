"""Services multiplied under load, and thinned out again."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from tests.acceptance.faults import assert_each_once, holder_of, put_spread, until_called
from tests.acceptance.record import Target
from tests.acceptance.stack import Stack, now

from harebell.dev.crew import GRACE_S
from harebell.dev.plan import Counts, Kind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SCALED = (Kind.TICKER, Kind.DISPATCHER, Kind.EXECUTOR)
RUNS = 500
OVER = 30.0  # seconds, evenly: they go on until all but one of each have gone
SHORT = {"HAREBELL_HORIZON": "5s", "HAREBELL_SLOTS_NORMAL": "8"}  # so that all have work to do


async def test_s66_from_one_to_four_and_back_under_load_loses_and_doubles_nothing(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    own_stack.start(Counts(), **SHORT)
    async with own_stack.tenant("scaling") as tenant:
        hook = target.http("scaling", sleep=0.3)
        owed = await put_spread(tenant, hook, RUNS, first=2, over=OVER)
        await until_called(target, "scaling", RUNS // 20)

        grown_in = await asyncio.to_thread(grow, own_stack)
        grown_at = len(target.calls("scaling"))
        await until_called(target, "scaling", grown_at + RUNS // 5)
        shrunk_in = await asyncio.to_thread(shrink, own_stack)
        shrunk_at = len(target.calls("scaling"))
        runs = await tenant.until_runs(RUNS, "succeeded", within=OVER + 30)

    calls = target.calls("scaling")
    worked = Counter(holder_of(run) for run in runs)
    record_property("grown", f"in {grown_in:.1f} s, after {grown_at} runs")
    record_property("shrunk", f"in {shrunk_in:.1f} s, after {shrunk_at} runs")
    record_property("runs", f"worst {max(call.late for call in calls):.2f} s late; by {worked}")
    assert len(set(owed)) == RUNS
    assert_each_once(calls, runs, RUNS)
    assert shrunk_at < RUNS, "nothing was left to do for those that stayed"
    assert len(worked) == 4
    assert shrunk_in < GRACE_S, "some had to be killed"


def grow(stack: Stack) -> float:
    """Seconds until three more of each are ready."""
    began = now()
    started = [
        stack.start_one(kind, number, ready=False, **SHORT)
        for kind in SCALED
        for number in (2, 3, 4)
    ]
    stack.services.crew.await_ready(
        [stack.services.plan(kind, number) for kind in SCALED for number in (2, 3, 4)]
    )
    assert len({member.pid for member in started}) == len(started)
    return (now() - began).total_seconds()


def shrink(stack: Stack) -> float:
    """Seconds until three of each have ended: the oldest."""
    began = now()
    stack.stop(*(name_of(kind, number) for kind in SCALED for number in (1, 2, 3)))
    return (now() - began).total_seconds()
