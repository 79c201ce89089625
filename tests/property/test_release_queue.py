"""Whatever comes, and however often we look: each ticket leaves once, and never before its lead."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tickets import NINE, after, routed

from harebell.dispatcher.release.queue import (
    SHORTEST_LEAD,
    ArrivalDecision,
    ReleaseQueue,
    decide_on_arrival,
)
from harebell.messaging.ticket_batches import MAX_BYTES, MAX_SPAN, MAX_TICKETS
from harebell.messaging.ticket_messages import to_delay_queues, to_work_queues
from harebell.messaging.topology.delay_queues import LONGEST_LEAD, LONGEST_MS

LONGEST_WAIT_S = LONGEST_MS / 1000
waits = st.floats(min_value=-5, max_value=15)
steps = st.floats(min_value=0.001, max_value=3)  # seconds between looks
dues = st.lists(st.floats(min_value=-60, max_value=LONGEST_WAIT_S), max_size=60)


@pytest.mark.requirement("S46")
@given(arrivals=st.lists(st.tuples(waits, steps), max_size=40))
def test_each_ticket_leaves_once_and_never_before_its_lead(
    arrivals: list[tuple[float, float]],
) -> None:
    heap = ReleaseQueue()
    now, left = NINE, []
    for number, (wait, step) in enumerate(arrivals):
        heap.push(routed(number, now + timedelta(seconds=wait)))
        now += timedelta(seconds=step)
        left += [(now, ticket) for ticket in heap.due(now)]

    now += timedelta(seconds=15)
    left += [(now, ticket) for ticket in heap.due(now)]

    assert all(at >= ticket.due_at - LONGEST_LEAD for at, ticket in left)
    assert len({ticket.identity for _, ticket in left}) == len(left) == len(arrivals)
    assert len(heap) == 0


@pytest.mark.requirement("S46")
@given(waits=st.lists(waits, min_size=1, max_size=40), step=st.floats(0.01, 0.5))
def test_looked_at_often_enough_no_ticket_leaves_late(waits: list[float], step: float) -> None:
    heap = ReleaseQueue()
    now = NINE - timedelta(seconds=10)
    for number, wait in enumerate(waits):
        heap.push(routed(number, after(wait)))
    while heap:
        now += timedelta(seconds=step)
        for ticket in heap.due(now):
            assert now <= ticket.due_at - SHORTEST_LEAD + timedelta(seconds=step)


@given(seconds=dues)
def test_bundles_that_wait_obey_their_bounds_and_lose_nothing(seconds: list[float]) -> None:
    tickets = [routed(number, after(due)) for number, due in enumerate(seconds)]

    bundles = to_delay_queues(tickets, NINE)

    assert sorted(t.key for b in bundles for t in b.tickets) == sorted(t.key for t in tickets)
    for bundle in bundles:
        instants = [max(ticket.due_at, NINE) for ticket in bundle.tickets]
        assert max(instants) - min(instants) <= MAX_SPAN
        assert len(bundle.tickets) <= MAX_TICKETS
        assert len(bundle.body) <= MAX_BYTES


@given(
    kinds=st.lists(st.tuples(st.sampled_from(["default", "mail"]), st.integers(1, 10))),
    work_batch_size=st.integers(1, 50),
)
def test_work_bundles_are_of_one_pool_and_lane_and_lose_nothing(
    kinds: list[tuple[str, int]], work_batch_size: int
) -> None:
    tickets = [
        routed(number, pool=pool, priority=priority)
        for number, (pool, priority) in enumerate(kinds)
    ]

    bundles = to_work_queues(tickets, work_batch_size)

    assert sorted(t.key for b in bundles for t in b.tickets) == sorted(t.key for t in tickets)
    for bundle in bundles:
        assert {ticket.queue for ticket in bundle.tickets} == {bundle.routing_key}
        assert 1 <= len(bundle.tickets) <= work_batch_size
        priorities = [ticket.priority for ticket in bundle.tickets]
        assert priorities == sorted(priorities, reverse=True)


@given(wait=st.floats(min_value=0, max_value=5 * LONGEST_WAIT_S), is_full=st.booleans())
def test_a_ticket_goes_round_only_where_a_tier_can_take_it(wait: float, *, is_full: bool) -> None:
    arrival = decide_on_arrival(timedelta(seconds=wait), is_full=is_full)

    (bundle,) = to_delay_queues([routed(due_at=after(wait))], NINE)

    assert arrival is not ArrivalDecision.DELAY or bundle.exchange == "harebell.delay"
