"""Services multiplied under load, and thinned out again."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from tests.acceptance.faults import assert_each_once, holder_of, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now, until

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of
from harebell.dev.processes import STOP_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SCALED = (ServiceKind.TICKER, ServiceKind.DISPATCHER, ServiceKind.EXECUTOR)
RUNS = 500
OVER = 30.0  # seconds, evenly: they go on until all but one of each have gone
SHORT = {"HAREBELL_HORIZON": "5s", "HAREBELL_SLOTS_NORMAL": "8"}  # so that all have work to do

MANY = 20  # executors
FEW = 4  # of them at a time are started, or told to stop
FEW_SLOTS = SHORT | {"HAREBELL_SLOTS_NORMAL": "4", "HAREBELL_DATABASE_POOL_MAX": "4"}
A_WAVE = 100  # runs, over so many seconds; the next wave is put when they are over:
WAVE_S = 5.0
TAKEN_UP = 60.0  # seconds until each executor has had a run

_HOLDERS = "SELECT count(DISTINCT lease_holder) FROM runs WHERE tenant = $1"


@pytest.mark.requirement("S66", "S124")
async def test_from_one_to_four_and_back_under_load_loses_and_doubles_nothing(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    own_stack.start(ServiceCounts(), **SHORT)
    async with own_stack.tenant("scaling") as tenant:
        hook = target.http("scaling", sleep=0.3)
        expected = await put_spread(tenant, hook, RUNS, first=2, over=OVER)
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
    assert len(set(expected)) == RUNS
    assert_each_once(calls, runs, RUNS)
    assert shrunk_at < RUNS, "nothing was left to do for those that stayed"
    assert len(worked) == 4
    assert shrunk_in < STOP_TIMEOUT, "some had to be killed"


def grow(stack: Stack) -> float:
    """Seconds until three more of each are ready."""
    began = now()
    started = [
        stack.start_one(kind, number, ready=False, **SHORT)
        for kind in SCALED
        for number in (2, 3, 4)
    ]
    stack.services.processes.await_ready(
        [stack.services.plan(kind, number) for kind in SCALED for number in (2, 3, 4)]
    )
    assert len({member.pid for member in started}) == len(started)
    return (now() - began).total_seconds()


def shrink(stack: Stack) -> float:
    """Seconds until three of each have ended: the oldest."""
    began = now()
    stack.stop(*(name_of(kind, number) for kind in SCALED for number in (1, 2, 3)))
    return (now() - began).total_seconds()


@pytest.mark.requirement("S66")
@pytest.mark.chaos
async def test_from_one_executor_to_twenty_and_back_mid_run_loses_and_doubles_nothing(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    own_stack.start(ServiceCounts(), **FEW_SLOTS)
    over = asyncio.Event()
    async with own_stack.tenant("twenty") as tenant:
        hook = target.http("twenty", sleep=0.3)
        putting = asyncio.create_task(put_until(over, tenant, hook))
        await until_called(target, "twenty", A_WAVE // 5)

        grown_in = await asyncio.to_thread(grow_to_many, own_stack)

        async def all_at_work() -> bool:
            holders: int = await tenant.ledger.fetchval(_HOLDERS, tenant.name)
            return holders == MANY

        await until(all_at_work, within=TAKEN_UP, what="a run of every executor")
        shrunk_in = await asyncio.to_thread(shrink_to_one, own_stack)
        shrunk_at = len(target.calls("twenty"))
        over.set()
        expected = await putting
        runs = await tenant.until_runs(expected, "succeeded", within=WAVE_S + 60)

    calls = target.calls("twenty")
    record_property("grown", f"to {MANY} in {grown_in:.1f} s")
    record_property("shrunk", f"to 1 in {shrunk_in:.1f} s, after {shrunk_at} runs of {expected}")
    record_property("late", f"{max(call.late for call in calls):.2f} s at worst")
    assert_each_once(calls, runs, expected)
    assert len({holder_of(run) for run in runs}) == MANY
    assert shrunk_at < expected, "nothing was left to do for the one that stayed"


async def put_until(over: asyncio.Event, tenant: Tenant, hook: dict[str, object]) -> int:
    """Wave after wave, the last one begun before it is over; how many runs are owed."""
    for wave in count(1):
        ids = await put_spread(tenant, hook, A_WAVE, first=1, over=WAVE_S, prefix=f"wave-{wave}")
        assert len(set(ids)) == A_WAVE
        await asyncio.sleep(WAVE_S)
        if over.is_set():
            return wave * A_WAVE
    raise AssertionError


def grow_to_many(stack: Stack) -> float:
    """Seconds until all but the first, which runs already, are ready."""
    began = now()
    for start in range(2, MANY + 1, FEW):
        few = range(start, min(start + FEW, MANY + 1))
        for number in few:
            stack.start_one(ServiceKind.EXECUTOR, number, ready=False, **FEW_SLOTS)
        stack.services.processes.await_ready([stack.services.plan(ServiceKind.EXECUTOR, n) for n in few])
    return (now() - began).total_seconds()


def shrink_to_one(stack: Stack) -> float:
    """Seconds until all but the last have ended by themselves."""
    began = now()
    for start in range(1, MANY, FEW):
        few = range(start, min(start + FEW, MANY))
        notified_at = now()
        stack.stop(*(name_of(ServiceKind.EXECUTOR, number) for number in few))
        assert (now() - notified_at).total_seconds() < STOP_TIMEOUT, "some had to be killed"
    return (now() - began).total_seconds()
