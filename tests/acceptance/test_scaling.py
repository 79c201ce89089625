"""Services that are added and removed under load."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from tests.acceptance.faults import assert_each_once, holder_of, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now
from tests.rig.polling import until

from harebell.dev.plan import STOP_TIMEOUT, ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

SCALED = (ServiceKind.TICKER, ServiceKind.DISPATCHER, ServiceKind.EXECUTOR)
SCALED_INSTANCES = 4  # of each service
# With few slots and a short horizon, every instance has work.
SHORT_HORIZON = {"HAREBELL_HORIZON": "5s", "HAREBELL_SLOTS_NORMAL": "8"}

MAX_EXECUTORS = 20
GROUP_SIZE = 4  # executors that start or stop at the same time
SMALL_SETTINGS = SHORT_HORIZON | {"HAREBELL_SLOTS_NORMAL": "4", "HAREBELL_DATABASE_POOL_MAX": "4"}
WAVE_RUNS = 100  # runs; each wave begins at the end of the wave before
WAVE_DURATION = 5.0  # seconds
WORK_TIMEOUT = 60.0  # seconds until each executor has had a run

_HOLDERS = "SELECT count(DISTINCT lease_holder) FROM runs WHERE tenant = $1"


@pytest.mark.requirement("S66", "S124")
async def test_runs_execute_once_when_services_scale_from_one_to_four_and_back(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    own_stack.start(ServiceCounts(), **SHORT_HORIZON)
    finished = asyncio.Event()
    async with own_stack.tenant("scaling") as tenant:
        putting = asyncio.create_task(
            put_until(finished, tenant, target.http("scaling", sleep=0.3))
        )
        await until_called(target, "scaling", WAVE_RUNS // 4)

        grown_in = await asyncio.to_thread(grow, own_stack)
        grown_at = len(target.calls("scaling"))
        await until_called(target, "scaling", grown_at + WAVE_RUNS)
        await until_working(tenant, SCALED_INSTANCES)
        shrunk_in = await asyncio.to_thread(shrink, own_stack)
        shrunk_at = len(target.calls("scaling"))
        finished.set()
        expected = await putting
        runs = await tenant.until_runs(expected, "succeeded", within=WAVE_DURATION + 60)

    calls = target.calls("scaling")
    runs_by_executor = Counter(holder_of(run) for run in runs)
    record_property("grown", f"in {grown_in:.1f} s, after {grown_at} runs")
    record_property("shrunk", f"in {shrunk_in:.1f} s, after {shrunk_at} runs")
    record_property(
        "runs", f"worst {max(call.late for call in calls):.2f} s late; by {runs_by_executor}"
    )
    assert_each_once(calls, runs, expected)
    assert shrunk_at < expected, "No run remained for the last instances."
    assert len(runs_by_executor) == SCALED_INSTANCES
    assert shrunk_in < STOP_TIMEOUT, "The supervisor had to kill an instance."


def grow(stack: Stack) -> float:
    """Start three more instances of each service and return the seconds until all are ready."""
    started_at = now()
    started = [
        stack.start_one(kind, number, ready=False, **SHORT_HORIZON)
        for kind in SCALED
        for number in (2, 3, 4)
    ]
    stack.services.processes.await_ready(
        [stack.services.plan(kind, number) for kind in SCALED for number in (2, 3, 4)]
    )
    assert len({member.pid for member in started}) == len(started)
    return (now() - started_at).total_seconds()


def shrink(stack: Stack) -> float:
    """Stop the three oldest instances of each service and return the seconds until their end."""
    started_at = now()
    stack.stop(*(name_of(kind, number) for kind in SCALED for number in (1, 2, 3)))
    return (now() - started_at).total_seconds()


@pytest.mark.requirement("S66")
@pytest.mark.chaos
async def test_runs_execute_once_when_executors_scale_from_one_to_twenty_and_back(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    own_stack.start(ServiceCounts(), **SMALL_SETTINGS)
    finished = asyncio.Event()
    async with own_stack.tenant("twenty") as tenant:
        hook = target.http("twenty", sleep=0.3)
        putting = asyncio.create_task(put_until(finished, tenant, hook))
        await until_called(target, "twenty", WAVE_RUNS // 5)

        grown_in = await asyncio.to_thread(grow_to_many, own_stack)

        await until_working(tenant, MAX_EXECUTORS)
        shrunk_in = await asyncio.to_thread(shrink_to_one, own_stack)
        shrunk_at = len(target.calls("twenty"))
        finished.set()
        expected = await putting
        runs = await tenant.until_runs(expected, "succeeded", within=WAVE_DURATION + 60)

    calls = target.calls("twenty")
    record_property("grown", f"to {MAX_EXECUTORS} in {grown_in:.1f} s")
    record_property("shrunk", f"to 1 in {shrunk_in:.1f} s, after {shrunk_at} runs of {expected}")
    record_property("late", f"{max(call.late for call in calls):.2f} s at worst")
    assert_each_once(calls, runs, expected)
    assert len({holder_of(run) for run in runs}) == MAX_EXECUTORS
    assert shrunk_at < expected, "No run remained for the last executor."


async def until_working(tenant: Tenant, executors: int) -> None:
    """Wait until that number of executors has claimed a run."""

    async def are_working() -> bool:
        holders: int = await tenant.ledger.fetchval(_HOLDERS, tenant.name)
        return holders == executors

    await until(are_working, within=WORK_TIMEOUT, what="a run of every executor")


async def put_until(finished: asyncio.Event, tenant: Tenant, hook: dict[str, object]) -> int:
    """Put one wave of runs after the other until `finished`, and return the number of runs."""
    for wave in count(1):
        ids = await put_spread(
            tenant, hook, WAVE_RUNS, first=1, over=WAVE_DURATION, prefix=f"wave-{wave}"
        )
        assert len(set(ids)) == WAVE_RUNS
        await asyncio.sleep(WAVE_DURATION)
        if finished.is_set():
            return wave * WAVE_RUNS
    raise AssertionError


def grow_to_many(stack: Stack) -> float:
    """Start the other executors and return the seconds until all are ready."""
    started_at = now()
    for start in range(2, MAX_EXECUTORS + 1, GROUP_SIZE):
        group = range(start, min(start + GROUP_SIZE, MAX_EXECUTORS + 1))
        for number in group:
            stack.start_one(ServiceKind.EXECUTOR, number, ready=False, **SMALL_SETTINGS)
        stack.services.processes.await_ready(
            [stack.services.plan(ServiceKind.EXECUTOR, n) for n in group]
        )
    return (now() - started_at).total_seconds()


def shrink_to_one(stack: Stack) -> float:
    """Stop all executors but the last and return the seconds until their end."""
    started_at = now()
    for start in range(1, MAX_EXECUTORS, GROUP_SIZE):
        group = range(start, min(start + GROUP_SIZE, MAX_EXECUTORS))
        notified_at = now()
        stack.stop(*(name_of(ServiceKind.EXECUTOR, number) for number in group))
        assert (now() - notified_at).total_seconds() < STOP_TIMEOUT, (
            "The supervisor had to kill an instance."
        )
    return (now() - started_at).total_seconds()
