"""Integration tests of claims: each run is claimed once, and no ticket blocks the lane."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.executor.environment import (
    TIMEOUT,
    ClaimingLane,
    FaultyPool,
    open_faulty_pool,
    running,
)
from tests.rig.polling import until

from harebell.contract.errors import DatabaseUnavailable
from harebell.domain.run_states import RunState
from harebell.executor import metrics
from harebell.executor.claiming.claimer import MAX_VISIBILITY_WAIT, VISIBILITY_TIMEOUT
from harebell.executor.claiming.unclaimed_tickets import MAX_ROWS
from harebell.runtime.clock import monotonic

pytestmark = pytest.mark.postgres


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


@pytest.fixture
def lane(ledger: FaultyPool) -> ClaimingLane:
    return ClaimingLane(ledger)


async def until_claimed(lane: ClaimingLane, count: int) -> None:
    """Wait until the lane has claimed `count` runs, and let the claimer try to claim more."""
    async with asyncio.timeout(TIMEOUT):
        while len(lane.runs) < count:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


@pytest.mark.requirement("S80")
async def test_work_batch_is_claimed_in_one_statement(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(200)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()):
        claimed = await lane.claimer.claim(tickets)

    assert claimed
    assert lane.claims == sorted((each.run_id, 2, 1) for each in tickets)
    assert ledger.statements == 1
    row = await ledger.fetch_row(tickets[0])
    assert (row["state"], row["lease_holder"], row["seq"]) == (RunState.RUNNING, "executor-1", 2)


@pytest.mark.requirement("S86")
async def test_repeated_work_batch_claims_each_run_once(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(5)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)
        await lane.claimer.claim(tickets)
        await asyncio.gather(*(lane.claimer.claim(tickets) for _ in range(5)))

    assert len(lane.runs) == 5
    assert (await ledger.fetch_row(tickets[0]))["seq"] == 2


@pytest.mark.requirement("S86")
async def test_latest_of_two_tickets_with_different_due_times_claims_the_run(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    (ticket,) = ledger.tickets(1)
    await ledger.stage([ticket])
    early = ticket.model_copy(update={"due_at": ticket.due_at - timedelta(hours=1)})

    async with running(lane.claimer.run()):
        await lane.claimer.claim([early, ticket, early])

    assert [run.ticket.due_at for run in lane.runs] == [ticket.due_at]


@pytest.mark.requirement("S80")
async def test_each_run_is_claimed_by_one_of_two_executors(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    other = ClaimingLane(ledger, "executor-2")
    tickets = ledger.tickets(50)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()), running(other.claimer.run()):
        await asyncio.gather(
            *(
                each.claimer.claim(tickets[n : n + 10])
                for n in range(0, 50, 10)
                for each in (lane, other)
            )
        )

    assert sorted(lane.claims + other.claims) == sorted((t.run_id, 2, 1) for t in tickets)


@pytest.mark.requirement("S49")
async def test_ticket_is_claimed_after_the_commit_of_its_row(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(3)
    await ledger.stage(tickets[:1])

    async with running(lane.claimer.run()):
        claim = asyncio.create_task(lane.claimer.claim(tickets))
        while ledger.statements < 4:  # noqa: ASYNC110  # until the claimer has tried several times
            await asyncio.sleep(0.01)
        await ledger.stage(tickets[1:])
        await claim

    assert len(lane.runs) == 3


@pytest.mark.requirement("S49", "S89")
async def test_orphan_ticket_is_dropped_after_the_timeout_and_delays_no_other_ticket(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    (orphan, real) = ledger.tickets(2)
    await ledger.stage([real])
    before = metrics.ORPHAN_TICKETS._value.get()  # noqa: SLF001  # the library has no public reader
    started_at = monotonic()

    async with running(lane.claimer.run()):
        claim = asyncio.create_task(lane.claimer.claim([orphan]))
        await asyncio.sleep(0)
        await lane.claimer.claim([real])
        seconds_of_real = monotonic() - started_at
        await claim

    assert seconds_of_real < VISIBILITY_TIMEOUT / 2
    assert monotonic() - started_at >= VISIBILITY_TIMEOUT
    assert [run.key for run in lane.runs] == [real.run_key]
    assert metrics.ORPHAN_TICKETS._value.get() == before + 1  # noqa: SLF001  # the library has no public reader


@pytest.mark.requirement("S33", "ASK-4")
@pytest.mark.parametrize(
    "setting",
    [
        "state = 'cancelled', finished_at = now()",
        "seq = 3",
        "state = 'succeeded', seq = 5, finished_at = now()",
        "version = 2",
        "expires_at = now()",
    ],
)
async def test_stale_ticket_is_dropped_at_once(
    ledger: FaultyPool, lane: ClaimingLane, setting: str
) -> None:
    (ticket,) = ledger.tickets(1)
    await ledger.stage([ticket])
    await ledger.update_row(ticket, setting)
    started_at = monotonic()

    async with running(lane.claimer.run()):
        claimed = await lane.claimer.claim([ticket])

    assert claimed
    assert lane.runs == []
    assert monotonic() - started_at < VISIBILITY_TIMEOUT


@pytest.mark.requirement("S14")
async def test_run_with_two_tickets_is_claimed_by_the_ticket_that_matches_its_row(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    (old,) = ledger.tickets(1)
    await ledger.stage([old])
    await ledger.update_row(old, "seq = 3")
    new = old.model_copy(update={"seq": 3})

    async with running(lane.claimer.run()):
        for batch in ([new, old], [old, new]):
            await lane.claimer.claim(batch)

    assert lane.claims == [(old.run_id, 4, 1)]


@pytest.mark.requirement("S91")
async def test_repeated_ticket_recovers_a_claim_whose_response_was_lost(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(3)
    await ledger.stage(tickets)
    ledger.lost_responses = 1

    async with running(lane.claimer.run()):
        with pytest.raises(DatabaseUnavailable):
            await lane.claimer.claim(tickets)
        await lane.claimer.claim(tickets)

    assert lane.claims == sorted((each.run_id, 2, 1) for each in tickets)
    assert not any(run.is_fresh(monotonic()) for run in lane.runs)  # each needs a renewal


@pytest.mark.requirement("S67")
async def test_claimer_stops_at_the_capacity_of_the_lane_and_continues_when_it_changes(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(30)
    await ledger.stage(tickets)
    lane.starter.limit = 15

    async with running(lane.claimer.run()):
        batches = [
            asyncio.create_task(lane.claimer.claim(tickets[n : n + 10])) for n in (0, 10, 20)
        ]
        await until_claimed(lane, 15)
        first = len(lane.runs)
        lane.starter.limit = 100
        lane.starter.capacity_changed.set()
        await asyncio.gather(*batches)

    assert first == 15
    assert len(lane.runs) == 30


@pytest.mark.requirement("S21", "S43")
async def test_urgent_tickets_of_a_later_batch_are_claimed_before_waiting_tickets(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(30)
    await ledger.stage(tickets)
    urgent = [each.model_copy(update={"priority": 7}) for each in tickets[20:]]
    lane.starter.limit = 5

    async with running(lane.claimer.run()):
        batches = [
            asyncio.create_task(lane.claimer.claim(batch)) for batch in (tickets[:20], urgent)
        ]
        await until_claimed(lane, 5)
        lane.starter.limit = 15
        lane.starter.capacity_changed.set()
        await until_claimed(lane, 15)
        first = [run.ticket.priority for run in lane.runs]
        is_urgent_batch_done = batches[1].done()
        lane.starter.limit = 100
        lane.starter.capacity_changed.set()
        await asyncio.gather(*batches)

    assert sorted(first) == [5] * 5 + [7] * 10
    assert is_urgent_batch_done
    assert len(lane.runs) == 30


@pytest.mark.requirement("S91", "S110")
async def test_batch_that_is_claimed_in_parts_fails_once_and_succeeds_when_it_is_repeated(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(30)
    await ledger.stage(tickets)
    lane.starter.limit = 10

    async with running(lane.claimer.run()):
        batch = asyncio.create_task(lane.claimer.claim(tickets))
        await until_claimed(lane, 10)
        claimed_before = len(lane.runs)
        ledger.lost_responses = 1
        lane.starter.limit = 20
        lane.starter.capacity_changed.set()
        with pytest.raises(DatabaseUnavailable):
            await batch
        lane.starter.limit = 100
        repeated = await lane.claimer.claim(tickets)

    assert (claimed_before, repeated) == (10, True)
    assert lane.claims == sorted((each.run_id, 2, 1) for each in tickets)


@pytest.mark.requirement("S49", "S110")
async def test_batch_that_is_claimed_in_parts_waits_for_its_invisible_rows(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(20)
    await ledger.stage(tickets[5:])
    lane.starter.limit = 8

    async with running(lane.claimer.run()):
        batch = asyncio.create_task(lane.claimer.claim(tickets))
        await until_claimed(lane, 3)
        is_done_early = batch.done()
        lane.starter.limit = 100
        lane.starter.capacity_changed.set()
        await ledger.stage(tickets[:5])
        claimed = await batch

    assert (is_done_early, claimed) == (False, True)
    assert lane.claims == sorted((each.run_id, 2, 1) for each in tickets)


@pytest.mark.requirement("S110")
async def test_empty_work_batch_is_acknowledged(ledger: FaultyPool, lane: ClaimingLane) -> None:
    tickets = ledger.tickets(1)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()):
        claimed = await lane.claimer.claim([])
        await lane.claimer.claim(tickets)

    assert claimed
    assert len(lane.runs) == 1


@pytest.mark.requirement("S110")
async def test_work_batch_above_the_row_limit_of_a_statement_is_claimed(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(MAX_ROWS + 1)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)

    assert len(lane.runs) == MAX_ROWS + 1


@pytest.mark.requirement("S73")
async def test_closed_claimer_claims_nothing_more_and_returns_false(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = ledger.tickets(2)
    await ledger.stage(tickets)
    lane.starter.limit = 0

    async with running(lane.claimer.run()):
        waiting = asyncio.create_task(lane.claimer.claim(tickets[:1]))
        await asyncio.sleep(0)
        lane.claimer.close()
        results = [await waiting, await lane.claimer.claim(tickets[1:])]

    assert results == [False, False]
    assert lane.runs == []


class SlowPool(FaultyPool):
    """A pool whose responses take longer than the next check of an invisible row."""

    async def fetch(self, query: str, *args: Any) -> Any:
        rows = await super().fetch(query, *args)
        await asyncio.sleep(2 * MAX_VISIBILITY_WAIT)
        return rows


async def test_copy_of_a_ticket_claims_nothing_while_the_response_of_the_first_claim_is_late(
    ledger: FaultyPool,
) -> None:
    slow = SlowPool(pool=ledger.pool, clock=ledger.clock)
    lane, tickets = ClaimingLane(slow), ledger.tickets(20)
    count_running = "SELECT count(*) FROM runs WHERE state = 'running'"

    async with running(lane.claimer.run()):
        first = asyncio.create_task(lane.claimer.claim(tickets))
        await asyncio.sleep(VISIBILITY_TIMEOUT / 4)  # the claimer retries the invisible rows
        await ledger.stage(tickets)

        async def have_started() -> bool:
            return bool(await ledger.pool.fetchval(count_running) == len(tickets))

        await until(have_started, within=VISIBILITY_TIMEOUT)
        second = await lane.claimer.claim(tickets)

    assert (await first, second) == (True, True)
    assert lane.claims == sorted((ticket.run_id, 2, 1) for ticket in tickets)


async def test_repeated_ticket_does_not_claim_a_run_again_after_its_claim_was_given_up(
    ledger: FaultyPool, lane: ClaimingLane
) -> None:
    """The completion of the run was rejected. Its lease expires, and a later ticket retries it."""
    tickets = ledger.tickets(3)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)
        lane.claimed_runs.remove(lane.runs)
        lane.runs.clear()
        repeated = await lane.claimer.claim(tickets)

    assert (repeated, lane.claims) == (True, [])
