"""When a ticket leaves the dispatcher."""

from datetime import timedelta

import pytest
from tests.tickets import NINE, after, crowd, routed

from harebell.dispatcher.core import (
    HOLD,
    RELEASE_RATE,
    SHORTEST_LEAD,
    Arrival,
    ReleaseHeap,
    is_given_up,
    lead_for,
    on_arrival,
)
from harebell.kernel.delay import LONGEST_LEAD, MARGIN, SHORTEST_MS

SHORTEST_WAIT = timedelta(milliseconds=SHORTEST_MS) + MARGIN  # that a tier can make
BLINK = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("backlog", "lead"),
    [
        (0, SHORTEST_LEAD),
        (RELEASE_RATE // 10, SHORTEST_LEAD),
        (RELEASE_RATE, timedelta(seconds=1)),
        (RELEASE_RATE * 2, LONGEST_LEAD),
        (RELEASE_RATE * 50, LONGEST_LEAD),
    ],
)
def test_the_lead_is_the_time_that_the_backlog_takes_within_its_bounds(
    backlog: int, lead: timedelta
) -> None:
    assert lead_for(backlog) == lead


@pytest.mark.parametrize(
    ("wait", "full", "expected"),
    [
        (-timedelta(hours=2), False, Arrival.RELEASE),
        (timedelta(0), True, Arrival.RELEASE),
        (SHORTEST_LEAD, False, Arrival.RELEASE),
        (SHORTEST_LEAD + BLINK, False, Arrival.HOLD),
        (HOLD, False, Arrival.HOLD),
        (HOLD + BLINK, False, Arrival.DELAY),
        (SHORTEST_WAIT - BLINK, True, Arrival.HOLD),
        (SHORTEST_WAIT, True, Arrival.DELAY),
        (timedelta(days=3), False, Arrival.DELAY),
    ],
)
def test_a_ticket_that_comes_is_held_released_or_sent_on(
    wait: timedelta, *, full: bool, expected: Arrival
) -> None:
    assert on_arrival(wait, lead=SHORTEST_LEAD, full=full) is expected


def test_a_lone_ticket_leaves_by_the_shortest_lead() -> None:
    heap = ReleaseHeap()
    heap.push(routed(due_at=NINE))

    assert heap.due(NINE - SHORTEST_LEAD - BLINK) == []
    assert len(heap.due(NINE - SHORTEST_LEAD)) == 1
    assert len(heap) == 0


def test_a_crowd_of_one_instant_leaves_together_and_earlier() -> None:
    heap = ReleaseHeap()
    for ticket in crowd(RELEASE_RATE // 2):
        heap.push(ticket)
    lead = timedelta(seconds=0.5)

    assert heap.due(NINE - lead - BLINK) == []
    assert len(heap.due(NINE - lead)) == RELEASE_RATE // 2


def test_what_is_due_much_later_does_not_hasten_what_is_due_soon() -> None:
    heap = ReleaseHeap()
    for ticket in crowd(RELEASE_RATE, after(5)):
        heap.push(ticket)
    heap.push(routed(RELEASE_RATE, NINE))

    assert heap.due(NINE - SHORTEST_LEAD - BLINK) == []
    assert [ticket.due_at for ticket in heap.due(NINE - SHORTEST_LEAD)] == [NINE]


def test_tickets_leave_in_the_order_of_their_due_times() -> None:
    heap = ReleaseHeap()
    for second in (3, 1, 2):
        heap.push(routed(second, after(second)))

    released = heap.due(after(10))

    assert [ticket.due_at for ticket in released] == [after(1), after(2), after(3)]


def test_a_drained_heap_has_given_everything_back() -> None:
    heap = ReleaseHeap()
    near, far = routed(1, NINE), routed(2, after(60))
    heap.push(near)
    heap.push(far)
    heap.due(NINE - timedelta(seconds=1))

    assert set(heap.drain()) == {near, far}
    assert len(heap) == 0


def test_a_pool_may_be_missing_for_an_hour_after_the_due_instant() -> None:
    assert not is_given_up(NINE, NINE - timedelta(minutes=1))
    assert not is_given_up(NINE, NINE + timedelta(hours=1))
    assert is_given_up(NINE, NINE + timedelta(hours=1) + BLINK)


def test_ask12_tenants_of_one_instant_are_let_go_by_turns() -> None:
    crowded = [ticket._replace(tenant="crowd") for ticket in crowd(5_000)]
    few = [ticket._replace(tenant="few") for ticket in crowd(50, first=5_000)]
    heap = ReleaseHeap()
    for ticket in (*crowded, *few):
        heap.push(ticket)

    gone = heap.due(NINE)

    assert [ticket.tenant for ticket in gone[:100]] == ["crowd", "few"] * 50
    assert [ticket for ticket in gone if ticket.tenant == "few"] == few
    assert [ticket for ticket in gone if ticket.tenant == "crowd"] == crowded
