"""Tests of the release queue: the time at which a ticket leaves the dispatcher."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from tests.fakes.tickets import NINE, after, header, headers

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

SHORTEST_WAIT = timedelta(milliseconds=SHORTEST_MS) + MARGIN  # of the shortest delay queue
MILLISECOND = timedelta(milliseconds=1)
NUMBERED = list(enumerate(["many", "many", "many", "few", "many", "many", "few"]))


@pytest.mark.requirement("S46")
@pytest.mark.parametrize(
    ("wait", "is_full", "expected"),
    [
        (-timedelta(hours=2), False, ArrivalDecision.RELEASE),
        (timedelta(0), True, ArrivalDecision.RELEASE),
        (SHORTEST_LEAD, False, ArrivalDecision.RELEASE),
        (SHORTEST_LEAD + MILLISECOND, False, ArrivalDecision.QUEUE),
        (MAX_QUEUED_WAIT, False, ArrivalDecision.QUEUE),
        (MAX_QUEUED_WAIT + MILLISECOND, False, ArrivalDecision.DELAY),
        (SHORTEST_WAIT - MILLISECOND, True, ArrivalDecision.QUEUE),
        (SHORTEST_WAIT, True, ArrivalDecision.DELAY),
        (timedelta(days=3), False, ArrivalDecision.DELAY),
    ],
)
def test_arriving_ticket_is_queued_released_or_delayed(
    wait: timedelta, *, is_full: bool, expected: ArrivalDecision
) -> None:
    assert decide_on_arrival(wait, is_full=is_full) is expected


def test_single_ticket_has_the_shortest_lead() -> None:
    queue = queue_of([header(due_at=NINE)])

    assert timedelta(milliseconds=200) <= SHORTEST_LEAD  # the time that a claim can need
    assert queue.due(NINE - SHORTEST_LEAD - MILLISECOND) == []
    assert len(queue.due(NINE - SHORTEST_LEAD)) == 1
    assert len(queue) == 0


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_simultaneous_tickets_leave_earlier_at_a_constant_rate(seconds: float) -> None:
    queue = queue_of(headers(int(RELEASE_RATE * seconds)))
    start = NINE - SHORTEST_LEAD - timedelta(seconds=seconds)
    tenth = RELEASE_RATE * seconds / 10

    counts = [len(queue.due(start + n * timedelta(seconds=seconds) / 10)) for n in range(11)]

    assert counts == [0, *[tenth] * 10]
    assert len(queue) == 0


def test_tickets_above_the_release_rate_leave_at_the_longest_lead() -> None:
    queue = queue_of(headers(4 * RELEASE_RATE))
    later = (LONGEST_LEAD - SHORTEST_LEAD).total_seconds() * RELEASE_RATE

    assert queue.due(NINE - LONGEST_LEAD - MILLISECOND) == []
    assert len(queue.due(NINE - LONGEST_LEAD)) == 4 * RELEASE_RATE - later


def test_evenly_distributed_tickets_have_the_shortest_lead() -> None:
    interval = timedelta(seconds=10 / RELEASE_RATE)
    queue = queue_of(header(n, NINE + n * interval) for n in range(RELEASE_RATE // 5))

    assert [ticket.due_at for ticket in queue.due(NINE - SHORTEST_LEAD)] == [NINE]


def test_tickets_that_are_claimed_at_their_due_time_have_the_shortest_lead() -> None:
    claimed_when_due = [ticket._replace(claim_at_due_time=True) for ticket in headers(RELEASE_RATE)]
    queue = queue_of(claimed_when_due)

    assert timedelta(milliseconds=200) <= SHORTEST_LEAD  # the time that a claim can need
    assert queue.due(NINE - SHORTEST_LEAD - MILLISECOND) == []
    assert queue.due(NINE - SHORTEST_LEAD) == claimed_when_due
    assert len(queue) == 0


def test_later_tickets_do_not_change_the_lead_of_an_earlier_ticket() -> None:
    queue = queue_of([*headers(RELEASE_RATE, after(5)), header(RELEASE_RATE, NINE)])

    assert timedelta(milliseconds=200) <= SHORTEST_LEAD  # the time that a claim can need
    assert queue.due(NINE - SHORTEST_LEAD - MILLISECOND) == []
    assert [ticket.due_at for ticket in queue.due(NINE - SHORTEST_LEAD)] == [NINE]


@pytest.mark.requirement("S43", "S47", "S48")
def test_tickets_leave_in_the_order_of_their_due_times() -> None:
    queue = queue_of(header(second, after(second)) for second in (3, 1, 2))

    released = queue.due(after(10))

    assert [ticket.due_at for ticket in released] == [after(1), after(2), after(3)]


@pytest.mark.requirement("S21", "S43")
def test_simultaneous_tickets_leave_by_priority_and_the_tenants_of_each_alternate() -> None:
    low = [header(number, priority=4)._replace(tenant=tenant) for number, tenant in NUMBERED[:4]]
    high = [header(number, priority=7)._replace(tenant=tenant) for number, tenant in NUMBERED[4:]]
    earlier = header(9, after(-0.001), priority=1)

    released = queue_of([*low, *high, earlier]).due(NINE)

    order = [(ticket.priority, ticket.tenant) for ticket in released]
    assert order == [
        (1, "default"),
        (7, "many"),
        (7, "few"),
        (7, "many"),
        (4, "many"),
        (4, "few"),
        (4, "many"),
        (4, "many"),
    ]


def test_ticket_that_arrives_later_leaves_before_tickets_with_a_later_due_time() -> None:
    queue = queue_of([header(1, after(1.9))])
    assert queue.due(NINE) == []  # the ticket is within the longest lead
    queue.push(header(2, after(1.5)))

    released = [*queue.due(after(1.3)), *queue.due(after(10))]

    assert [ticket.due_at for ticket in released] == [after(1.5), after(1.9)]


def test_drain_returns_all_tickets() -> None:
    near, far = header(1, after(1)), header(2, after(60))
    waiting = header(3, after(1))._replace(claim_at_due_time=True)
    queue = queue_of([near, far, waiting])
    queue.due(NINE)

    assert set(queue.drain()) == {near, far, waiting}
    assert len(queue) == 0


def test_ticket_without_a_pool_waits_for_one_hour_after_its_due_time() -> None:
    assert not is_past_pool_deadline(NINE, NINE - timedelta(minutes=1))
    assert not is_past_pool_deadline(NINE, NINE + timedelta(hours=1))
    assert is_past_pool_deadline(NINE, NINE + timedelta(hours=1) + MILLISECOND)


@pytest.mark.requirement("ASK-12")
@pytest.mark.parametrize("before", [timedelta(0), SHORTEST_LEAD + timedelta(seconds=0.2)])
def test_tenants_alternate_when_their_tickets_are_simultaneous(before: timedelta) -> None:
    many = [ticket._replace(tenant="many") for ticket in headers(5_000)]
    few = [ticket._replace(tenant="few") for ticket in headers(50, first=5_000)]
    queue = queue_of([*many, *few])

    released = queue.due(NINE - before)

    assert [ticket.tenant for ticket in released[:100]] == ["many", "few"] * 50
    assert [ticket for ticket in released if ticket.tenant == "few"] == few
    assert [ticket for ticket in released if ticket.tenant == "many"] == many[: len(released) - 50]


def queue_of(tickets: Iterable[TicketHeader]) -> ReleaseQueue:
    queue = ReleaseQueue()
    for ticket in tickets:
        queue.push(ticket)
    return queue
