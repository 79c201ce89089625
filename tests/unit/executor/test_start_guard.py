"""Unit tests of the start guard: blocking work waits for imminent starts, and never for long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.fakes.lane import OTHER, LaneHarness

from harebell.executor.model.start_queue import BATCHED_START_THRESHOLD
from harebell.executor.running import start_guard
from harebell.executor.running.start_guard import MAX_BLOCK, MAX_WAITERS, START_GRACE, StartGuard
from harebell.executor.running.starter import LATE_AFTER
from harebell.runtime.clock import monotonic

LATER = 0.2  # seconds, longer than each test


def is_clear(wait: Coroutine[Any, Any, None]) -> bool:
    """Return whether the wait ends at once, without an iteration of the loop."""
    try:
        wait.send(None)
    except StopIteration:
        return True
    wait.close()
    return False


def start_in(seconds: float) -> Callable[[], float]:
    time = monotonic() + seconds
    return lambda: time


def guard_of(*next_starts: Callable[[], float | None]) -> StartGuard:
    guard = StartGuard()
    for next_start in next_starts:
        guard.watch(next_start)
    return guard


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    """Stop the clock of the guard, because the machine may be slow."""
    time = monotonic()
    monkeypatch.setattr(start_guard, "monotonic", lambda: time)
    return time


@pytest.mark.requirement("S68")
@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        (-2 * START_GRACE, False),
        (-START_GRACE / 2, True),
        (0, True),
        (MAX_BLOCK / 2, True),
        (2 * MAX_BLOCK, False),
    ],
)
async def test_guard_waits_only_for_a_start_that_is_imminent(
    now: float, seconds: float, *, waits: bool
) -> None:
    guard = guard_of(lambda: now + seconds, lambda: None)

    assert is_clear(guard.wait_until_clear()) is not waits


@pytest.mark.requirement("S68")
async def test_guard_waits_until_all_imminent_runs_have_started() -> None:
    first, second = start_in(MAX_BLOCK / 4), start_in(MAX_BLOCK / 2)
    guard = guard_of(first, second, start_in(LATER))

    await guard.wait_until_clear()

    assert second() < monotonic() < second() + LATER / 2


@pytest.mark.requirement("S68")
async def test_second_waiting_step_checks_the_starts_again_after_the_first_step() -> None:
    starts = [monotonic() + MAX_BLOCK / 2]
    guard = guard_of(lambda: starts[-1])
    finished: list[float] = []

    async def step() -> None:
        await guard.wait_until_clear()
        finished.append(monotonic())
        starts.append(monotonic() + MAX_BLOCK / 2)

    await asyncio.gather(step(), step())

    assert finished[1] > starts[1]


async def test_step_does_not_wait_when_the_maximum_number_of_steps_waits(now: float) -> None:
    guard = guard_of(lambda: now)
    waiting = [asyncio.ensure_future(guard.wait_until_clear()) for _ in range(MAX_WAITERS)]
    await asyncio.sleep(0)

    assert is_clear(guard.wait_until_clear())
    await asyncio.gather(*waiting)


async def test_cancelled_steps_do_not_count_as_waiting_steps(now: float) -> None:
    guard = guard_of(lambda: now)
    for _ in range(2 * MAX_WAITERS):
        step = asyncio.ensure_future(guard.wait_until_clear())
        await asyncio.sleep(0)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)

    assert not is_clear(guard.wait_until_clear())


async def test_next_start_of_a_lane_is_its_first_due_time_unless_many_runs_wait() -> None:
    lane = await LaneHarness.create(2)
    due = lane.claimed(1, LATER)
    lane.starter.add([due])

    assert lane.starter.next_start() == lane.clock.to_monotonic(due.ticket.due_at)

    lane.starter.add(
        [lane.claimed(number, LATER) for number in range(2, BATCHED_START_THRESHOLD + 1)]
    )
    assert lane.starter.next_start() is None


async def test_lane_without_a_free_slot_has_no_next_start() -> None:
    lane = await LaneHarness.create(1)

    async with lane.running():
        lane.starter.add([lane.claimed(1), lane.claimed(2, LATER)])
        await lane.wait_for(1, lane.task.started)
        assert lane.starter.next_start() is None


@pytest.mark.requirement("S68")
async def test_late_run_starts_after_the_imminent_start_of_another_lane() -> None:
    lane = await LaneHarness.create(2)
    due = start_in(MAX_BLOCK)
    lane.starter.start_guard.watch(due)
    lane.task.released.set()
    late = lane.claimed(1, -2 * LATE_AFTER, task=OTHER)

    async with lane.running():
        lane.starter.add([late])
        await lane.wait_for(1, lane.completed)

    assert late.started_at is not None
    assert lane.clock.to_monotonic(late.started_at) > due()
