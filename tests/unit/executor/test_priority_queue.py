"""Unit tests of the order of starts."""

from datetime import datetime

import pytest
from tests.fakes.tickets import NINE, after

from harebell.executor.model.priority_queue import PriorityQueue

Item = tuple[float, int]  # the due time in seconds after nine, the priority


def queue_of(*items: Item) -> PriorityQueue[Item]:
    queue: PriorityQueue[Item] = PriorityQueue()
    for item in items:
        due_in, priority = item
        queue.insert(item, after(due_in), priority)
    return queue


def pop_all(queue: PriorityQueue[Item], now: datetime) -> list[Item]:
    return [queue.pop(lambda: now) for _ in range(len(queue))]


@pytest.mark.requirement("S21", "S43")
def test_due_items_leave_by_priority_and_then_by_due_time() -> None:
    queue = queue_of((0, 4), (1, 4), (0.4, 7), (0.2, 5), (0.3, 7))

    assert pop_all(queue, after(1)) == [(0.3, 7), (0.4, 7), (0.2, 5), (0, 4), (1, 4)]


@pytest.mark.requirement("S21", "S43")
def test_late_item_leaves_before_later_items_of_a_higher_priority() -> None:
    queue = queue_of((0, 4), (4.9, 5), (5.1, 5), (14.9, 7), (15.1, 7))

    order = pop_all(queue, after(20))

    assert order == [(14.9, 7), (4.9, 5), (0, 4), (15.1, 7), (5.1, 5)]


@pytest.mark.requirement("S02", "S43")
def test_due_items_leave_before_items_that_are_not_due_whatever_their_priority_is() -> None:
    queue = queue_of((2, 7), (1, 6), (0, 4), (1, 5))

    assert pop_all(queue, NINE) == [(0, 4), (1, 6), (1, 5), (2, 7)]


def test_equal_items_leave_in_the_order_of_their_arrival() -> None:
    queue: PriorityQueue[str] = PriorityQueue()
    for name in ("first", "second", "third"):
        queue.insert(name, NINE, 5)

    assert [queue.pop(lambda: NINE) for _ in range(3)] == ["first", "second", "third"]


def test_times_and_ranks_cover_every_priority() -> None:
    queue = queue_of((3, 7), (1, 4), (2, 5))

    assert queue.next_due() == after(1)
    assert queue.first_rank(NINE) is None
    assert queue.first_rank(after(1)) == after(1 - 20)
    assert queue.first_rank(after(3)) == after(3 - 35)
    assert [queue.next_change(after(n)) for n in range(4)] == [after(1), after(2), after(3), None]


def test_empty_queue_has_no_times() -> None:
    queue = queue_of((0, 5))
    queue.pop(lambda: NINE)

    assert (len(queue), list(queue)) == (0, [])
    assert (queue.next_due(), queue.first_rank(NINE), queue.next_change(NINE)) == (None, None, None)


def test_removed_items_leave_the_others_in_order() -> None:
    queue = queue_of(*((due_in, 5) for due_in in (3, 1, 2, 0)), (0, 6))

    removed = queue.remove(lambda item: item in {(0, 6), (1, 5)})

    assert sorted(removed) == [(0, 6), (1, 5)]
    assert pop_all(queue, after(9)) == [(0, 5), (2, 5), (3, 5)]
