"""The order of starts: the lowest rank first, no early item, and a bounded wait."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tickets import NINE, after

from harebell.domain.run_states import PRIORITY_STEP, start_rank
from harebell.executor.model.priority_queue import PriorityQueue

Item = tuple[float, int]  # the due time in seconds after nine, the priority

items = st.tuples(st.integers(0, 600).map(lambda tenths: tenths / 10), st.integers(1, 10))
steps = st.lists(st.tuples(st.lists(items, max_size=4), st.floats(0, 10), st.integers(0, 3)))


def stopped_at(now: datetime) -> Callable[[], datetime]:
    """Return a clock that always returns `now`."""
    return lambda: now


@pytest.mark.requirement("S21", "S43")
@given(steps=steps)
def test_each_item_leaves_once_and_no_waiting_due_item_has_a_lower_rank(
    steps: list[tuple[list[Item], float, int]],
) -> None:
    """Push, wait and pop in turn, and compare each item with all items that wait."""
    queue: PriorityQueue[Item] = PriorityQueue()
    waiting: list[Item] = []
    now = NINE
    for pushed, seconds, pops in steps:
        for item in pushed:
            queue.insert(item, after(item[0]), item[1])
            waiting.append(item)
        now += timedelta(seconds=seconds)
        due_times = [after(due_in) for due_in, _ in waiting]
        assert queue.next_due() == min(due_times, default=None)
        assert queue.next_change(now) is None or queue.next_change(now) in due_times
        for _ in range(min(pops, len(waiting))):
            first_rank = queue.first_rank(now)
            popped = queue.pop(stopped_at(now))
            due = [item for item in waiting if after(item[0]) <= now]
            ranks = [start_rank(after(due_in), priority) for due_in, priority in due]
            assert first_rank == min(ranks, default=None)
            if due:
                assert popped in due
                assert start_rank(after(popped[0]), popped[1]) == min(ranks)
            else:
                assert popped[0] == min(due_in for due_in, _ in waiting)
            waiting.remove(popped)

    assert sorted(queue) == sorted(waiting)
    assert len(queue) == len(waiting)


@pytest.mark.requirement("S21", "S43")
@given(low=st.integers(1, 3), high=st.integers(1, 3), interval=st.floats(0.05, 1.0))
def test_run_waits_at_most_its_priority_steps_when_the_lane_never_drains(
    low: int, high: int, interval: float
) -> None:
    """One start and one arrival per interval keep the lane full of more urgent runs."""
    queue: PriorityQueue[Item] = PriorityQueue()
    queue.insert((0, low), NINE, low)
    bound = PRIORITY_STEP.total_seconds() * max(0, high - low) + 2 * interval

    second = 0.0
    for _ in range(3):  # a backlog
        queue.insert((0, high), NINE, high)
    while True:
        queue.insert((second, high), after(second), high)
        popped = queue.pop(stopped_at(after(second)))
        if popped == (0, low) or second > 60:
            break
        second += interval

    assert second <= bound + 3 * interval
