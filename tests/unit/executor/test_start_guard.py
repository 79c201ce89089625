"""What takes a turn of the loop waits for starts that are about to be due, and never for long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.fakes.lane import OTHER, Stage

from harebell.executor.model.start_queue import BATCHED_START_THRESHOLD
from harebell.executor.running.start_guard import MAX_BLOCK, MAX_WAITERS, START_GRACE, StartGuard
from harebell.executor.running.starter import LATE
from harebell.runtime.clock import monotonic

A_WHILE = 0.2  # seconds, in which everything here is over


def is_lull(lull: Coroutine[Any, Any, None]) -> bool:
    """Whether it is one at once, without so much as a turn of the loop."""
    try:
        lull.send(None)
    except StopIteration:
        return True
    lull.close()
    return False


def at(seconds: float) -> Callable[[], float]:
    moment = monotonic() + seconds
    return lambda: moment


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    """For ever, however slow the machine is."""
    moment = monotonic()
    monkeypatch.setattr("harebell.executor.lulls.monotonic", lambda: moment)
    return moment


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
async def test_what_is_due_within_a_turn_is_waited_for_until_it_has_begun(
    now: float, seconds: float, *, waits: bool
) -> None:
    lulls = StartGuard([lambda: now + seconds, lambda: None])

    assert is_lull(lulls.wait_until_clear()) is not waits


@pytest.mark.requirement("S68")
async def test_what_takes_a_turn_is_done_when_all_that_is_due_within_one_has_begun() -> None:
    first, second = at(MAX_BLOCK / 4), at(MAX_BLOCK / 2)
    lulls = StartGuard([first, second, at(A_WHILE)])

    await lulls.wait_until_clear()

    assert second() < monotonic() < second() + A_WHILE / 2


@pytest.mark.requirement("S68")
async def test_those_that_waited_together_do_not_make_late_what_is_due_after() -> None:
    """The second of them looks again when the first has had its turn."""
    moments = [monotonic() + MAX_BLOCK / 2]
    lulls = StartGuard([lambda: moments[-1]])
    done: list[float] = []

    async def step() -> None:
        await lulls.wait_until_clear()
        done.append(monotonic())
        moments.append(monotonic() + MAX_BLOCK / 2)

    await asyncio.gather(step(), step())

    assert done[1] > moments[1]


async def test_of_many_that_wait_for_a_lull_the_rest_go_on(now: float) -> None:
    lulls = StartGuard([lambda: now])
    waiting = [asyncio.ensure_future(lulls.wait_until_clear()) for _ in range(MAX_WAITERS)]
    await asyncio.sleep(0)

    assert is_lull(lulls.wait_until_clear())
    await asyncio.gather(*waiting)


async def test_who_is_cancelled_while_it_waits_leaves_the_lull_to_others(now: float) -> None:
    lulls = StartGuard([lambda: now])
    for _ in range(2 * MAX_WAITERS):
        given_up = asyncio.ensure_future(lulls.wait_until_clear())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)

    assert not is_lull(lulls.wait_until_clear())


async def test_others_keep_the_loop_free_for_what_a_lane_starts_next_but_not_for_a_crowd() -> None:
    stage = await Stage.make(2)
    due = stage.claimed(1, A_WHILE)
    stage.runner.add([due])

    assert stage.runner.next_start() == stage.clock.to_monotonic(due.ticket.due_at)

    stage.runner.add(
        [stage.claimed(number, A_WHILE) for number in range(2, BATCHED_START_THRESHOLD + 1)]
    )
    assert stage.runner.next_start() is None


async def test_nothing_is_kept_free_for_a_lane_without_a_slot() -> None:
    stage = await Stage.make(1)

    async with stage.running():
        stage.runner.add([stage.claimed(1), stage.claimed(2, A_WHILE)])
        await stage.until(1, stage.work.started)
        assert stage.runner.next_start() is None


@pytest.mark.requirement("S68")
async def test_a_backlog_starts_after_what_another_lane_has_due_within_a_turn() -> None:
    stage = await Stage.make(2)
    due = at(MAX_BLOCK)
    stage.runner.lulls.next_starts.append(due)
    stage.work.go_on.set()
    late = stage.claimed(1, -2 * LATE, task=OTHER)

    async with stage.running():
        stage.runner.add([late])
        await stage.until(1, stage.settled)

    assert late.started_at is not None
    assert stage.clock.to_monotonic(late.started_at) > due()
