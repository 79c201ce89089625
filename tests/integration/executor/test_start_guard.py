"""Claims, settles, facts and renewals are made in a lull: between two starts of whatever lane."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.integration.executor.environment import FaultyPool, ClaimingLane, running, open_faulty_pool

from harebell.executor.completer import GATHER_TIME, TELL_EVERY, Completer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.leases import LOOK_EVERY, RENEW_AFTER, LeaseKeeper
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.targets.attempt import Success
from harebell.runtime.clock import monotonic

pytestmark = pytest.mark.postgres

A_WHILE = 2 * max(GATHER_TIME, TELL_EVERY, LOOK_EVERY)  # seconds, in which each would have begun


@pytest.fixture
async def books(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


@dataclass(slots=True)
class Awaited(StartGuard):
    """No lull comes before the test lets it."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    come: asyncio.Event = field(default_factory=asyncio.Event)

    async def lull(self) -> None:
        self.asked.set()
        await self.come.wait()


@pytest.fixture
async def lulls() -> Awaited:
    return Awaited()


@pytest.mark.requirement("S68")
async def test_bundles_are_claimed_in_a_lull(books: FaultyPool, lulls: Awaited) -> None:
    lane = ClaimingLane(books)
    lane.claimer.lulls = lulls
    tickets = books.tickets(3)
    await books.stage(tickets)

    async with running(lane.claimer.run()):
        claiming = asyncio.ensure_future(lane.claimer.claim(tickets))
        await lulls.asked.wait()
        await asyncio.sleep(A_WHILE)
        assert books.statements == 0
        lulls.come.set()
        assert await claiming

    assert len(lane.held) == len(tickets)


async def claimed(books: FaultyPool) -> ClaimedRun:
    lane = ClaimingLane(books)
    tickets = books.tickets(1)
    await books.stage(tickets)
    async with running(lane.claimer.run()):
        await lane.claimer.claim(tickets)
    books.statements = 0
    return lane.held[0]


@pytest.mark.requirement("S68")
async def test_what_has_ended_goes_on_the_record_and_is_told_in_a_lull(
    books: FaultyPool, lulls: Awaited
) -> None:
    settler = Completer(books, books.publisher, books.clock, lambda _: None, lulls)
    run = await claimed(books)

    async with running(settler.run()):
        settler.complete(run, Success(200, "ok"))
        await lulls.asked.wait()
        await asyncio.sleep(A_WHILE)
        assert (books.statements, books.publisher.published) == (0, [])
        lulls.come.set()
        await settler.flush()

    assert (books.statements, len(books.publisher.published)) == (1, 1)


@pytest.mark.requirement("S68")
async def test_leases_are_renewed_in_a_lull(books: FaultyPool, lulls: Awaited) -> None:
    leases = LeaseKeeper(books, lulls)
    run = await claimed(books)
    run.renewed_at = old = monotonic() - RENEW_AFTER
    leases.add([run])

    async with running(leases.run()):
        await lulls.asked.wait()
        await asyncio.sleep(A_WHILE)
        assert books.statements == 0
        lulls.come.set()
        while run.renewed_at == old:  # noqa: ASYNC110  # the ledger has answered
            await asyncio.sleep(0)
