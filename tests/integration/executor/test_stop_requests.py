"""Integration tests of stop requests for claimed runs that have not started."""

from collections.abc import AsyncIterator

import pytest
from tests.fakes.lane import LaneHarness
from tests.integration.executor.environment import FaultyPool, open_faulty_pool

from harebell.contract.errors import DatabaseUnavailable
from harebell.domain.run_states import Reason, RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.runtime.clock import monotonic


class StopHarness:
    """One lane whose claimed runs do not start, and the renewals that find stop requests."""

    def __init__(self, ledger: FaultyPool, starter: LaneStarter) -> None:
        self.ledger = ledger
        self.starter = starter
        self.claimed_runs = ClaimedRuns()
        stop_requests = StopRequestHandler(
            pool=ledger,
            publisher=ledger.publisher,
            clock=ledger.clock,
            claimed_runs=self.claimed_runs,
        )
        stop_requests.watch(starter)
        self.leases = LeaseKeeper(
            pool=ledger,
            claimed_runs=self.claimed_runs,
            start_guard=StartGuard(),
            stop_requests=stop_requests,
            publisher=ledger.publisher,
            clock=ledger.clock,
        )

    async def claimed(self) -> ClaimedRun:
        tickets = self.ledger.tickets(1)
        await self.ledger.stage(tickets)
        (run,) = await self.ledger.claim(tickets)
        self.claimed_runs.add([run])
        self.starter.add([run])
        return run

    async def request_stop(self, run: ClaimedRun) -> None:
        setting = f"stop_requested_at = now(), reason = '{Reason.CANCELLED}'"
        await self.ledger.update_row(run.ticket, setting)

    async def state(self, run: ClaimedRun) -> str:
        state: str = (await self.ledger.fetch_row(run.ticket))["state"]
        return state


@pytest.fixture
async def harness(database_url: str) -> AsyncIterator[StopHarness]:
    lane = await LaneHarness.create(2)
    async with open_faulty_pool(database_url) as ledger:
        yield StopHarness(ledger, lane.starter)


async def test_unstarted_run_is_cancelled_by_the_renewal_after_its_stop_request(
    harness: StopHarness,
) -> None:
    run = await harness.claimed()
    await harness.request_stop(run)

    await harness.leases.renew([run])

    assert await harness.state(run) == RunState.CANCELLED
    assert (len(harness.starter.queue), len(harness.claimed_runs)) == (0, 0)


async def test_cancellation_is_repeated_by_the_next_renewal_when_it_fails(
    harness: StopHarness,
) -> None:
    run = await harness.claimed()
    await harness.request_stop(run)
    harness.ledger.publisher.before_publish = harness.ledger.terminate_transactions

    with pytest.raises(DatabaseUnavailable):
        await harness.leases.renew([run])
    waiting = harness.starter.queue.waiting()
    harness.ledger.publisher.before_publish = None
    await harness.leases.renew([run])

    assert waiting == [run]
    assert await harness.state(run) == RunState.CANCELLED
    assert (len(harness.starter.queue), len(harness.claimed_runs)) == (0, 0)


async def test_run_needs_a_renewal_before_its_start_when_its_cancellation_is_in_doubt(
    harness: StopHarness,
) -> None:
    run = await harness.claimed()
    harness.leases.alive_since = monotonic() - 60
    await harness.request_stop(run)
    harness.ledger.lost_commits = 1

    with pytest.raises(DatabaseUnavailable):
        await harness.leases.renew([run])

    assert await harness.state(run) == RunState.CANCELLED
    assert harness.starter.queue.waiting() == [run]
    assert not run.is_fresh(monotonic())
    assert not await harness.leases.try_renew_before_start(run)
    harness.ledger.lost_responses = 1
    assert not await harness.leases.try_renew_before_start(run)
