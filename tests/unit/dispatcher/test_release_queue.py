"""When a ticket leaves the dispatcher."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from tests.fakes.tickets import NINE, after, crowd, routed

from harebell.dispatcher.release.queue import (
    MAX_QUEUED_WAIT,
    RELEASE_RATE,
    SHORTEST_LEAD,
    ArrivalDecision,
    ReleaseQueue,
    decide_on_arrival,
    is_past_pool_deadline,
)
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import LONGEST_LEAD, MARGIN, SHORTEST_MS

SHORTEST_WAIT = timedelta(milliseconds=SHORTEST_MS) + MARGIN  # that a tier can make
BLINK = timedelta(milliseconds=1)


@pytest.mark.requirement("S46")
@pytest.mark.parametrize(
    ("wait", "full", "expected"),
    [
        (-timedelta(hours=2), False, ArrivalDecision.RELEASE),
        (timedelta(0), True, ArrivalDecision.RELEASE),
        (SHORTEST_LEAD, False, ArrivalDecision.RELEASE),
        (SHORTEST_LEAD + BLINK, False, ArrivalDecision.QUEUE),
        (MAX_QUEUED_WAIT, False, ArrivalDecision.QUEUE),
        (MAX_QUEUED_WAIT + BLINK, False, ArrivalDecision.DELAY),
        (SHORTEST_WAIT - BLINK, True, ArrivalDecision.QUEUE),
        (SHORTEST_WAIT, True, ArrivalDecision.DELAY),
        (timedelta(days=3), False, ArrivalDecision.DELAY),
    ],
)
def test_a_ticket_that_comes_is_held_released_or_sent_on(
    wait: timedelta, *, full: bool, expected: ArrivalDecision
) -> None:
    assert decide_on_arrival(wait, is_full=full) is expected


def test_a_lone_ticket_leaves_by_the_shortest_lead() -> None:
    heap = held([routed(due_at=NINE)])

    assert heap.due(NINE - SHORTEST_LEAD - BLINK) == []
    assert len(heap.due(NINE - SHORTEST_LEAD)) == 1
    assert len(heap) == 0


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_a_crowd_of_one_instant_leaves_earlier_and_evenly(seconds: float) -> None:
    heap = held(crowd(int(RELEASE_RATE * seconds)))
    begins = NINE - SHORTEST_LEAD - timedelta(seconds=seconds)
    tenth = RELEASE_RATE * seconds / 10

    left = [len(heap.due(begins + n * timedelta(seconds=seconds) / 10)) for n in range(11)]

    assert left == [0, *[tenth] * 10]
    assert len(heap) == 0


def test_of_a_crowd_too_large_what_cannot_be_in_time_leaves_at_the_longest_lead() -> None:
    heap = held(crowd(4 * RELEASE_RATE))
    later = (LONGEST_LEAD - SHORTEST_LEAD).total_seconds() * RELEASE_RATE

    assert heap.due(NINE - LONGEST_LEAD - BLINK) == []
    assert len(heap.due(NINE - LONGEST_LEAD)) == 4 * RELEASE_RATE - later


def test_what_comes_evenly_leaves_by_the_shortest_lead_however_much_it_is() -> None:
    step = timedelta(seconds=10 / RELEASE_RATE)
    heap = held(routed(n, NINE + n * step) for n in range(RELEASE_RATE // 5))

    assert [ticket.due_at for ticket in heap.due(NINE - SHORTEST_LEAD)] == [NINE]


def test_what_is_claimed_on_its_instant_leaves_by_the_shortest_lead_whatever_its_number() -> None:
    others = [ticket._replace(claim_at_due_time=True) for ticket in crowd(RELEASE_RATE)]
    heap = held(others)

    assert heap.due(NINE - SHORTEST_LEAD - BLINK) == []
    assert heap.due(NINE - SHORTEST_LEAD) == others
    assert len(heap) == 0


def test_what_is_due_much_later_does_not_hasten_what_is_due_soon() -> None:
    heap = held([*crowd(RELEASE_RATE, after(5)), routed(RELEASE_RATE, NINE)])

    assert heap.due(NINE - SHORTEST_LEAD - BLINK) == []
    assert [ticket.due_at for ticket in heap.due(NINE - SHORTEST_LEAD)] == [NINE]


@pytest.mark.requirement("S43", "S47", "S48")
def test_tickets_leave_in_the_order_of_their_due_times() -> None:
    heap = held(routed(second, after(second)) for second in (3, 1, 2))

    released = heap.due(after(10))

    assert [ticket.due_at for ticket in released] == [after(1), after(2), after(3)]


def test_a_drained_heap_has_given_everything_back() -> None:
    near, far = routed(1, after(1)), routed(2, after(60))
    waiting = routed(3, after(1))._replace(claim_at_due_time=True)
    heap = held([near, far, waiting])
    heap.due(NINE)

    assert set(heap.drain()) == {near, far, waiting}
    assert len(heap) == 0


def test_a_pool_may_be_missing_for_an_hour_after_the_due_instant() -> None:
    assert not is_past_pool_deadline(NINE, NINE - timedelta(minutes=1))
    assert not is_past_pool_deadline(NINE, NINE + timedelta(hours=1))
    assert is_past_pool_deadline(NINE, NINE + timedelta(hours=1) + BLINK)


@pytest.mark.requirement("ASK-12")
@pytest.mark.parametrize("before", [timedelta(0), SHORTEST_LEAD + timedelta(seconds=0.2)])
def test_tenants_of_one_instant_are_let_go_by_turns(before: timedelta) -> None:
    crowded = [ticket._replace(tenant="crowd") for ticket in crowd(5_000)]
    few = [ticket._replace(tenant="few") for ticket in crowd(50, first=5_000)]
    heap = held([*crowded, *few])

    gone = heap.due(NINE - before)

    assert [ticket.tenant for ticket in gone[:100]] == ["crowd", "few"] * 50
    assert [ticket for ticket in gone if ticket.tenant == "few"] == few
    assert [ticket for ticket in gone if ticket.tenant == "crowd"] == crowded[: len(gone) - 50]


def held(tickets: Iterable[TicketHeader]) -> ReleaseQueue:
    heap = ReleaseQueue()
    for ticket in tickets:
        heap.push(ticket)
    return heap
