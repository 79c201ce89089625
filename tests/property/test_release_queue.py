"""Each ticket leaves the release queue once, and never before the longest lead."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tickets import NINE, after, header

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
steps = st.floats(min_value=0.001, max_value=3)  # seconds between two releases
dues = st.lists(st.floats(min_value=-60, max_value=LONGEST_WAIT_S), max_size=60)


@pytest.mark.requirement("S46")
@given(arrivals=st.lists(st.tuples(waits, steps), max_size=40))
def test_ticket_leaves_once_and_never_before_the_longest_lead(
    arrivals: list[tuple[float, float]],
) -> None:
    queue = ReleaseQueue()
    now, released = NINE, []
    for number, (wait, step) in enumerate(arrivals):
        queue.push(header(number, now + timedelta(seconds=wait)))
        now += timedelta(seconds=step)
        released += [(now, ticket) for ticket in queue.due(now)]

    now += timedelta(seconds=15)
    released += [(now, ticket) for ticket in queue.due(now)]

    assert all(at >= ticket.due_at - LONGEST_LEAD for at, ticket in released)
    assert len({ticket.identity for _, ticket in released}) == len(released) == len(arrivals)
    assert len(queue) == 0


@pytest.mark.requirement("S46")
@given(waits=st.lists(waits, min_size=1, max_size=40), step=st.floats(0.01, 0.5))
def test_ticket_never_leaves_later_than_one_release_interval(
    waits: list[float], step: float
) -> None:
    queue = ReleaseQueue()
    now = NINE - timedelta(seconds=10)
    for number, wait in enumerate(waits):
        queue.push(header(number, after(wait)))
    while queue:
        now += timedelta(seconds=step)
        for ticket in queue.due(now):
            assert now <= ticket.due_at - SHORTEST_LEAD + timedelta(seconds=step)


@given(seconds=dues)
def test_delayed_batches_have_their_bounds_and_contain_each_ticket(seconds: list[float]) -> None:
    tickets = [header(number, after(due)) for number, due in enumerate(seconds)]

    batches = to_delay_queues(tickets, NINE)

    assert sorted(t.key for batch in batches for t in batch.tickets) == sorted(
        t.key for t in tickets
    )
    for batch in batches:
        times = [max(ticket.due_at, NINE) for ticket in batch.tickets]
        assert max(times) - min(times) <= MAX_SPAN
        assert len(batch.tickets) <= MAX_TICKETS
        assert len(batch.body) <= MAX_BYTES


@given(
    kinds=st.lists(st.tuples(st.sampled_from(["default", "mail"]), st.integers(1, 10))),
    work_batch_size=st.integers(1, 50),
)
def test_work_batches_have_one_pool_and_lane_and_contain_each_ticket(
    kinds: list[tuple[str, int]], work_batch_size: int
) -> None:
    tickets = [
        header(number, pool=pool, priority=priority)
        for number, (pool, priority) in enumerate(kinds)
    ]

    batches = to_work_queues(tickets, work_batch_size)

    assert sorted(t.key for batch in batches for t in batch.tickets) == sorted(
        t.key for t in tickets
    )
    for batch in batches:
        assert {ticket.queue for ticket in batch.tickets} == {batch.routing_key}
        assert 1 <= len(batch.tickets) <= work_batch_size
        priorities = [ticket.priority for ticket in batch.tickets]
        assert priorities == sorted(priorities, reverse=True)


@given(wait=st.floats(min_value=0, max_value=5 * LONGEST_WAIT_S), is_full=st.booleans())
def test_ticket_is_delayed_only_when_a_delay_queue_fits(wait: float, *, is_full: bool) -> None:
    arrival = decide_on_arrival(timedelta(seconds=wait), is_full=is_full)

    (batch,) = to_delay_queues([header(due_at=after(wait))], NINE)

    assert arrival is not ArrivalDecision.DELAY or batch.exchange == "harebell.delay"
