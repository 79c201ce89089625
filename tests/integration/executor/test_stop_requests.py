"""What was asked to stop before it started is dropped, and is nobody's work afterwards."""

from collections.abc import AsyncIterator

import pytest
from tests.fakes.lane import Stage
from tests.integration.executor.environment import LEASE, FaultyPool, open_faulty_pool

from harebell.contract.errors import DatabaseUnavailable
from harebell.domain.run_states import Reason, RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.runtime.clock import monotonic
from harebell.storage.runs import claims


class Floor:
    """One lane, whose claimed runs wait, and whoever follows orders to stop."""

    def __init__(self, books: FaultyPool, runner: LaneStarter) -> None:
        self.books = books
        self.runner = runner
        self.leases = LeaseKeeper(books)  # it looks like a pool
        self.stopping = StopRequestHandler(books, books.publisher, books.clock, self.leases, [runner])
        self.leases.stop = self.stopping.apply

    async def claimed(self) -> ClaimedRun:
        (of,) = tickets = self.books.tickets(1)
        await self.books.stage(tickets)
        wanted = claims.ClaimKey(
            key=of.run_key, seq=1, version=1, override=None, lease=LEASE, due_at=of.due_at
        )
        mine = await claims.claim(self.books.pool, [wanted], "executor-1")
        claim = mine[of.run_key]
        run = ClaimedRun(of, claim.token, claim.attempt, LEASE, monotonic())
        self.leases.add([run])
        self.runner.add([run])
        return run

    async def ask_to_stop(self, run: ClaimedRun) -> None:
        setting = f"stop_requested_at = now(), reason = '{Reason.CANCELLED}'"
        await self.books.update_row(run.ticket, setting)


@pytest.fixture
async def floor(database_url: str) -> AsyncIterator[Floor]:
    stage = await Stage.make(2)
    async with open_faulty_pool(database_url) as books:
        yield Floor(books, stage.runner)


async def test_what_was_asked_to_stop_is_dropped_by_the_next_renewal(floor: Floor) -> None:
    run = await floor.claimed()
    await floor.ask_to_stop(run)

    await floor.leases.renew([run])

    assert (await floor.books.fetch_row(run.ticket))["state"] == RunState.CANCELLED
    assert (len(floor.runner.heap), floor.leases.held) == (0, {})


async def test_a_drop_that_failed_is_tried_again(floor: Floor) -> None:
    run = await floor.claimed()
    await floor.ask_to_stop(run)
    floor.books.publisher.before_publish = floor.books.lose_transactions

    with pytest.raises(DatabaseUnavailable):
        await floor.leases.renew([run])
    waiting = floor.runner.heap.waiting()
    floor.books.publisher.before_publish = None
    await floor.leases.renew([run])

    assert waiting == [run]
    assert (await floor.books.fetch_row(run.ticket))["state"] == RunState.CANCELLED
    assert (len(floor.runner.heap), floor.leases.held) == (0, {})


async def test_what_may_have_been_dropped_does_not_start_without_a_renewal(floor: Floor) -> None:
    run = await floor.claimed()
    floor.leases.present_since = monotonic() - 60
    await floor.ask_to_stop(run)
    floor.books.lost_commits = 1

    with pytest.raises(DatabaseUnavailable):
        await floor.leases.renew([run])

    assert (await floor.books.fetch_row(run.ticket))["state"] == RunState.CANCELLED
    assert floor.runner.heap.waiting() == [run]
    assert not run.is_fresh(monotonic())
    assert not await floor.leases.renew_before_start(run)
    floor.books.lost_responses = 1
    assert not await floor.leases.renew_before_start(run)
