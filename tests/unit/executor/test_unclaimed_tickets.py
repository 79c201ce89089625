"""Unit tests of the order in which received tickets are claimed."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.contract.ticket import Ticket
from harebell.executor.claiming.unclaimed_tickets import (
    MAX_ROWS,
    ClaimRequest,
    Portion,
    UnclaimedTickets,
)

NOW = after(1)


def request_of(tickets: list[Ticket]) -> ClaimRequest:
    return ClaimRequest(tickets=tickets, done=asyncio.get_running_loop().create_future())


def batch(first: int, count: int, *, priority: int = 5) -> ClaimRequest:
    """Return a request for due tickets."""
    numbers = range(first, first + count)
    return request_of([ticket(number, NINE, priority=priority) for number in numbers])


def unclaimed_of(*requests: ClaimRequest) -> UnclaimedTickets:
    unclaimed = UnclaimedTickets()
    for request in requests:
        unclaimed.add(request)
    return unclaimed


def priorities(portions: Sequence[Portion]) -> list[int]:
    return [each.priority for _, tickets in portions for each in tickets]


async def test_whole_requests_leave_in_order_when_the_lane_can_claim_every_ticket() -> None:
    requests = [batch(0, 50, priority=4), batch(50, 50, priority=7)]

    portions = unclaimed_of(*requests).take(100, NOW)

    assert portions == [(request, request.tickets) for request in requests]


async def test_one_statement_has_a_maximum_of_rows_but_takes_at_least_one_request() -> None:
    unclaimed = unclaimed_of(batch(0, MAX_ROWS + 1), batch(1_000, 200), batch(2_000, 100))

    counts = [len(priorities(unclaimed.take(10_000, NOW))) for _ in range(3)]

    assert counts == [MAX_ROWS + 1, 200, 100]
    assert not unclaimed


@pytest.mark.requirement("S21", "S43")
async def test_tickets_leave_by_priority_when_the_lane_cannot_claim_every_ticket() -> None:
    low, high = batch(0, 50, priority=4), batch(50, 10, priority=7)
    unclaimed = unclaimed_of(low, high)

    first = unclaimed.take(15, NOW)
    rest = unclaimed.take(1_000, NOW)

    assert priorities(first) == [7] * 10 + [4] * 5
    assert [request for request, _ in first] == [high, low]
    assert priorities(rest) == [4] * 45
    assert not unclaimed


@pytest.mark.requirement("S21")
async def test_ticket_is_urgent_when_it_is_due_and_before_every_claimed_run() -> None:
    early = ticket(1, after(2), priority=7)
    unclaimed = unclaimed_of(batch(10, 3, priority=5), request_of([early]))
    front = after(-20)  # the rank of a run of priority 4

    urgent = [
        unclaimed.has_urgent(before, now)
        for before, now in ((front, NOW), (after(-25), NOW), (after(-25), after(2)), (None, NOW))
    ]
    taken = [unclaimed.take_urgent(limit, front, after(2)) for limit in (2, 0, 10)]

    assert urgent == [True, False, True, True]
    assert unclaimed.next_change(NOW) is None
    assert [priorities(portions) for portions in taken] == [[7, 5], [], [5, 5]]


async def test_next_change_is_the_due_time_of_the_next_ticket() -> None:
    unclaimed = unclaimed_of(request_of([ticket(1, after(3)), ticket(2, after(2), priority=4)]))

    assert unclaimed.next_change(NOW) == after(2)
    assert unclaimed.next_change(after(2)) == after(3)


async def test_request_is_done_after_its_last_ticket() -> None:
    request = batch(0, 3)

    request.finish(2)
    is_done = request.done.done()
    request.finish(1)

    assert (is_done, request.done.result()) == (False, True)


async def test_tickets_of_failed_and_cancelled_requests_are_discarded() -> None:
    failed, cancelled, live = batch(0, 3), batch(3, 3), batch(6, 3)
    unclaimed = unclaimed_of(failed, live)
    unclaimed.take(1, NOW)  # which orders the tickets
    unclaimed.add(cancelled)
    failed.fail(ValueError())
    cancelled.done.cancel()

    unclaimed.discard_ended()

    assert unclaimed.take(100, NOW) == [(live, live.tickets)]
    assert isinstance(failed.done.exception(), ValueError)


async def test_abandoned_requests_are_not_claimed() -> None:
    ordered, unordered = batch(0, 3), batch(3, 3)
    unclaimed = unclaimed_of(ordered)
    unclaimed.take(1, NOW)
    unclaimed.add(unordered)

    unclaimed.abandon()

    assert not unclaimed
    assert [ordered.done.result(), unordered.done.result()] == [False, False]
