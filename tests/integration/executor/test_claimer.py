"""Whole bundles are claimed, each run once, and no message can hold up or end a lane."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.executor.environment import FaultyPool, ClaimingLane, running, open_faulty_pool

from harebell.contract.errors import DatabaseUnavailable
from harebell.domain.run_states import RunState
from harebell.executor import metrics as executor_metrics
from harebell.executor.claiming.claimer import LOOK_AGAIN, MAX_ROWS, VISIBILITY_TIMEOUT
from harebell.runtime.clock import monotonic

pytestmark = pytest.mark.postgres


@pytest.fixture
async def books(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


@pytest.fixture
def lane(books: FaultyPool) -> ClaimingLane:
    return ClaimingLane(books)


@pytest.mark.requirement("S80")
async def test_a_bundle_is_claimed_whole_in_one_statement(books: FaultyPool, lane: ClaimingLane) -> None:
    tickets = books.tickets(200)
    await books.stage(tickets)

    async with running(lane.claimer.run()):
        claimed = await lane.claimer.claim(tickets)

    assert claimed
    assert lane.numbers == sorted((each.run_id, 2, 1) for each in tickets)
    assert books.statements == 1
    row = await books.fetch_row(tickets[0])
    assert (row["state"], row["lease_holder"], row["seq"]) == (RunState.RUNNING, "executor-1", 2)


@pytest.mark.requirement("S86")
async def test_a_bundle_that_comes_again_claims_nothing_twice(books: FaultyPool, lane: ClaimingLane) -> None:
    tickets = books.tickets(5)
    await books.stage(tickets)

    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)
        await lane.claimer.claim(tickets)
        await asyncio.gather(*(lane.claimer.claim(tickets) for _ in range(5)))

    assert len(lane.held) == 5
    assert (await books.fetch_row(tickets[0]))["seq"] == 2


@pytest.mark.requirement("S86")
async def test_of_copies_that_differ_in_their_time_the_latest_claims(
    books: FaultyPool, lane: ClaimingLane
) -> None:
    (ticket,) = books.tickets(1)
    await books.stage([ticket])
    early = ticket.model_copy(update={"due_at": ticket.due_at - timedelta(hours=1)})

    async with running(lane.claimer.run()):
        await lane.claimer.claim([early, ticket, early])

    assert [run.ticket.due_at for run in lane.held] == [ticket.due_at]


@pytest.mark.requirement("S80")
async def test_of_two_executors_each_run_has_one(books: FaultyPool, lane: ClaimingLane) -> None:
    other = ClaimingLane(books, "executor-2")
    tickets = books.tickets(50)
    await books.stage(tickets)

    async with running(lane.claimer.run()), running(other.claimer.run()):
        await asyncio.gather(
            *(
                each.claimer.claim(tickets[n : n + 10])
                for n in range(0, 50, 10)
                for each in (lane, other)
            )
        )

    assert sorted(lane.numbers + other.numbers) == sorted((t.run_id, 2, 1) for t in tickets)


@pytest.mark.requirement("S49")
async def test_a_ticket_that_outruns_its_commit_is_claimed_when_that_has_come(
    books: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = books.tickets(3)
    await books.stage(tickets[:1])

    async with running(lane.claimer.run()):
        claim = asyncio.create_task(lane.claimer.claim(tickets))
        while books.statements < 4:  # noqa: ASYNC110  # it looks again and again
            await asyncio.sleep(0.01)
        await books.stage(tickets[1:])
        await claim

    assert len(lane.held) == 3


@pytest.mark.requirement("S49", "S89")
async def test_a_phantom_is_let_go_after_a_while_and_holds_up_nobody(
    books: FaultyPool, lane: ClaimingLane
) -> None:
    (phantom, real) = books.tickets(2)
    await books.stage([real])
    before = executor_metrics.ORPHAN_TICKETS._value.get()  # the library offers no other way  # noqa: SLF001  # the library has no public reader
    began = monotonic()

    async with running(lane.claimer.run()):
        chased = asyncio.create_task(lane.claimer.claim([phantom]))
        await asyncio.sleep(0)
        await lane.claimer.claim([real])
        meanwhile = monotonic() - began
        await chased

    assert meanwhile < VISIBILITY_TIMEOUT / 2
    assert monotonic() - began >= VISIBILITY_TIMEOUT
    assert [run.key for run in lane.held] == [real.run_key]
    assert executor_metrics.ORPHAN_TICKETS._value.get() == before + 1  # noqa: SLF001  # the library has no public reader


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
async def test_what_was_cancelled_replaced_or_finished_is_not_claimed_and_not_waited_for(
    books: FaultyPool, lane: ClaimingLane, setting: str
) -> None:
    (ticket,) = books.tickets(1)
    await books.stage([ticket])
    await books.update_row(ticket, setting)
    began = monotonic()

    async with running(lane.claimer.run()):
        claimed = await lane.claimer.claim([ticket])

    assert claimed
    assert lane.held == []
    assert monotonic() - began < VISIBILITY_TIMEOUT


@pytest.mark.requirement("S14")
async def test_of_two_tickets_of_one_run_the_one_that_the_row_says_claims_it(
    books: FaultyPool, lane: ClaimingLane
) -> None:
    (old,) = books.tickets(1)
    await books.stage([old])
    await books.update_row(old, "seq = 3")
    new = old.model_copy(update={"seq": 3})

    async with running(lane.claimer.run()):
        for bundle in ([new, old], [old, new]):
            await lane.claimer.claim(bundle)

    assert lane.numbers == [(old.run_id, 4, 1)]


@pytest.mark.requirement("S91")
async def test_a_claim_whose_answer_was_lost_is_found_to_be_mine(books: FaultyPool, lane: ClaimingLane) -> None:
    tickets = books.tickets(3)
    await books.stage(tickets)
    books.lost_responses = 1

    async with running(lane.claimer.run()):
        with pytest.raises(DatabaseUnavailable):
            await lane.claimer.claim(tickets)
        await lane.claimer.claim(tickets)

    assert lane.numbers == sorted((each.run_id, 2, 1) for each in tickets)
    assert not any(run.is_fresh(monotonic()) for run in lane.held)  # renewed before they start


@pytest.mark.requirement("S67")
async def test_no_more_is_claimed_than_there_is_room_for(books: FaultyPool, lane: ClaimingLane) -> None:
    tickets = books.tickets(30)
    await books.stage(tickets)
    lane.slots = 15

    async with running(lane.claimer.run()):
        bundles = [
            asyncio.create_task(lane.claimer.claim(tickets[n : n + 10])) for n in (0, 10, 20)
        ]
        await asyncio.wait(bundles, timeout=0.3)
        first = len(lane.held)
        lane.slots = 100
        lane.claimer.nudge()
        await asyncio.gather(*bundles)

    assert first == 20  # whole bundles: the second began while there was room
    assert len(lane.held) == 30


@pytest.mark.requirement("S110")
async def test_an_empty_bundle_ends_nothing(books: FaultyPool, lane: ClaimingLane) -> None:
    tickets = books.tickets(1)
    await books.stage(tickets)

    async with running(lane.claimer.run()):
        nothing = await lane.claimer.claim([])
        await lane.claimer.claim(tickets)

    assert nothing
    assert len(lane.held) == 1


@pytest.mark.requirement("S110")
async def test_a_bundle_larger_than_a_statement_should_be_is_claimed_all_the_same(
    books: FaultyPool, lane: ClaimingLane
) -> None:
    tickets = books.tickets(MAX_ROWS + 1)
    await books.stage(tickets)

    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)

    assert len(lane.held) == MAX_ROWS + 1


@pytest.mark.requirement("S73")
async def test_closed_it_claims_nothing_more_and_says_so(books: FaultyPool, lane: ClaimingLane) -> None:
    tickets = books.tickets(2)
    await books.stage(tickets)
    lane.slots = 0

    async with running(lane.claimer.run()):
        waits = asyncio.create_task(lane.claimer.claim(tickets[:1]))
        await asyncio.sleep(0)
        lane.claimer.close()
        told = [await waits, await lane.claimer.claim(tickets[1:])]

    assert told == [False, False]
    assert lane.held == []


class FarBooks(FaultyPool):
    """Answers are on their way for longer than it takes until the next look."""

    async def fetch(self, query: str, *args: Any) -> Any:
        rows = await super().fetch(query, *args)
        await asyncio.sleep(2 * LOOK_AGAIN)
        return rows


async def test_a_copy_of_a_ticket_that_comes_while_its_claim_is_on_the_way_back_claims_nothing(
    books: FaultyPool,
) -> None:
    far = FarBooks(books.pool, books.clock)
    lane, tickets = ClaimingLane(far), books.tickets(20)
    running = "SELECT count(*) FROM runs WHERE state = 'running'"

    async with running(lane.claimer.run()):
        first = asyncio.create_task(lane.claimer.claim(tickets))
        await asyncio.sleep(VISIBILITY_TIMEOUT / 4)  # ahead of its rows, it is chased
        await books.stage(tickets)
        async with asyncio.timeout(VISIBILITY_TIMEOUT):
            while await books.pool.fetchval(running) < len(tickets):
                continue
        second = await lane.claimer.claim(tickets)

    assert (await first, second) == (True, True)
    assert lane.numbers == sorted((ticket.run_id, 2, 1) for ticket in tickets)


async def test_a_ticket_that_comes_again_of_a_run_that_was_let_go_does_not_run_it_again(
    books: FaultyPool, lane: ClaimingLane
) -> None:
    """Its end could not be recorded: its lease lapses, and the next attempt has a new token."""
    tickets = books.tickets(3)
    await books.stage(tickets)

    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)
        lane.held.clear()
        again = await lane.claimer.claim(tickets)

    assert (again, lane.numbers) == (True, [])
