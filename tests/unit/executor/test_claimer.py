"""Unit tests of the wait of a claimer for requests and for the capacity of its lane."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.fakes.lane import LEASE, LaneHarness

from harebell.contract.ticket import Ticket
from harebell.executor.claiming.claimer import Claimer, ClaimResult, TicketsByKey
from harebell.storage.runs.claims import Claim

TIMEOUT = 5.0  # seconds


class GrantingStrategy:
    """A claim strategy that claims each run."""

    async def claim(self, tickets: TicketsByKey) -> ClaimResult:
        return {key.key: Claim(key.key, key.seq + 1, 1) for key in tickets}, frozenset()


@pytest.fixture
async def lane() -> LaneHarness:
    """Return a lane with two slots and no loop that starts runs."""
    return await LaneHarness.create(2)


def claimer_of(lane: LaneHarness) -> Claimer:
    return Claimer(
        pool=cast("Any", None),
        clock=lane.clock,
        holder="executor-1",
        strategy=GrantingStrategy(),
        lease=lambda _: LEASE,
        starter=lane.starter,
        claimed_runs=lane.claimed_runs,
        start_guard=lane.starter.start_guard,
    )


@asynccontextmanager
async def running(*claimers: Claimer) -> AsyncIterator[None]:
    loops = [asyncio.create_task(claimer.run()) for claimer in claimers]
    try:
        async with asyncio.timeout(TIMEOUT):
            yield
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


def tickets(lane: LaneHarness, *numbers: int) -> list[Ticket]:
    """Return tickets that are not due, so that none of them is urgent."""
    return [lane.claimed(number, 60).ticket for number in numbers]


def tickets_of(lane: LaneHarness, *numbers: int, priority: int) -> list[Ticket]:
    return [lane.claimed(number, priority=priority).ticket for number in numbers]


def calls_of_capacity(lane: LaneHarness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each call of `LaneStarter.capacity`."""
    calls: list[int] = []
    capacity = type(lane.starter).capacity

    def counted(starter: Any) -> int:
        calls.append(capacity(starter))
        return calls[-1]

    monkeypatch.setattr(type(lane.starter), "capacity", counted)
    return calls


async def test_claimer_does_not_wake_when_the_capacity_changes_and_nothing_waits(
    lane: LaneHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of_capacity(lane, monkeypatch)

    async with running(claimer_of(lane)):
        for number in range(3):
            run = lane.claimed(number, 60)
            lane.starter.add([run])
            lane.starter.remove_unstarted({run.key})
            await asyncio.sleep(0.01)

    assert calls == []


async def test_both_claimers_continue_when_the_capacity_of_their_lane_changes(
    lane: LaneHarness,
) -> None:
    first, second = claimer_of(lane), claimer_of(lane)
    waiting = [lane.claimed(number, 60) for number in (1, 2)]
    lane.starter.add(waiting)

    async with running(first, second):
        requests = [
            asyncio.create_task(first.claim(tickets(lane, 3))),
            asyncio.create_task(second.claim(tickets(lane, 4))),
        ]
        unfinished = (await asyncio.wait(requests, timeout=0.05))[1]
        lane.starter.remove_unstarted({run.key for run in waiting})
        results = await asyncio.gather(*requests)

    assert unfinished == set(requests)
    assert results == [True, True]
    assert len(lane.starter.queue) == 2


async def test_new_request_claims_the_capacity_that_faster_attempts_have_added(
    lane: LaneHarness,
) -> None:
    claimer = claimer_of(lane)
    lane.starter.add([lane.claimed(number, 60) for number in (1, 2)])

    async with running(claimer):
        first = asyncio.create_task(claimer.claim(tickets(lane, 3)))
        await asyncio.wait([first], timeout=0.05)
        for _ in range(100):
            lane.starter._throughput.record(0.001)  # noqa: SLF001  # as quick attempts do
        claimed = await claimer.claim(tickets(lane, 4))

    assert claimed
    assert await first


@pytest.mark.requirement("S21")
async def test_urgent_ticket_is_claimed_although_the_lane_has_no_capacity(
    lane: LaneHarness,
) -> None:
    claimer = claimer_of(lane)
    lane.starter.add([lane.claimed(number, priority=4) for number in (1, 2)])

    async with running(claimer):
        equal = asyncio.create_task(claimer.claim(tickets_of(lane, 4, 5, priority=4)))
        urgent = asyncio.create_task(claimer.claim(tickets_of(lane, 3, 6, 7, priority=7)))
        while len(lane.starter.queue) < 4:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        waiting = [run.ticket.priority for run in lane.starter.queue.waiting()]
        are_done = equal.done(), urgent.done()
        claimer.close()
        results = [await equal, await urgent]

    assert sorted(waiting) == [4, 4, 7, 7]  # the urgent capacity is twice the capacity
    assert are_done == (False, False)
    assert results == [False, False]


@pytest.mark.requirement("S21")
async def test_urgent_ticket_is_claimed_when_it_becomes_due(lane: LaneHarness) -> None:
    claimer = claimer_of(lane)
    lane.starter.add([lane.claimed(number, priority=4) for number in (1, 2)])

    async with running(claimer):
        claimed = await claimer.claim([lane.claimed(3, 0.2, priority=7).ticket])
        is_due = lane.clock.now() >= lane.starter.queue.pop(lane.clock.now).ticket.due_at

    assert claimed
    assert is_due


async def test_cancelled_request_is_not_claimed(lane: LaneHarness) -> None:
    claimer = claimer_of(lane)
    waiting = [lane.claimed(number, 60) for number in (1, 2)]
    lane.starter.add(waiting)

    async with running(claimer):
        cancelled = asyncio.create_task(claimer.claim(tickets(lane, 3)))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        lane.starter.remove_unstarted({run.key for run in waiting})
        await claimer.claim(tickets(lane, 4))
        keys = [run.ticket.run_spec.target.task.args for run in lane.starter.queue.waiting()]  # type: ignore[union-attr]  # every target here is a task

    assert keys == [{"filling": "x" * 4}]


async def test_closed_claimer_finishes_its_requests_without_a_claim(lane: LaneHarness) -> None:
    claimer = claimer_of(lane)
    lane.starter.add([lane.claimed(number, 60) for number in (1, 2)])

    async with running(claimer):
        request = asyncio.create_task(claimer.claim(tickets(lane, 3)))
        await asyncio.sleep(0)
        claimer.close()
        results = [await request, await claimer.claim(tickets(lane, 4))]

    assert results == [False, False]
    assert len(lane.starter.queue) == 2
