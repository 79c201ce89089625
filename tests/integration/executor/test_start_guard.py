"""Integration tests of the start guard in claims, completions, event publications and renewals."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.executor.environment import (
    ClaimingLane,
    FaultyPool,
    open_faulty_pool,
    running,
)

from harebell.executor.completer import EVENT_INTERVAL, GATHER_TIME, Completer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.leases import RENEW_AFTER, RENEWAL_INTERVAL, LeaseKeeper
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.executor.targets.attempt import Success
from harebell.runtime.clock import monotonic

pytestmark = pytest.mark.postgres

# Seconds in which each step would have begun without the guard.
LONG_ENOUGH = 2 * max(GATHER_TIME, EVENT_INTERVAL, RENEWAL_INTERVAL)


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


class ClosedGuard(StartGuard):
    """A start guard that lets no step pass until the test opens it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait_until_clear(self) -> None:
        self.reached.set()
        await self.opened.wait()


@pytest.fixture
async def guard() -> ClosedGuard:
    return ClosedGuard()


async def claim_one(ledger: FaultyPool) -> ClaimedRun:
    tickets = ledger.tickets(1)
    await ledger.stage(tickets)
    (run,) = await ledger.claim(tickets)
    return run


@pytest.mark.requirement("S68")
async def test_claimer_waits_for_the_guard_before_a_claim(
    ledger: FaultyPool, guard: ClosedGuard
) -> None:
    lane = ClaimingLane(ledger, guard=guard)
    tickets = ledger.tickets(3)
    await ledger.stage(tickets)

    async with running(lane.claimer.run()):
        claiming = asyncio.ensure_future(lane.claimer.claim(tickets))
        await guard.reached.wait()
        await asyncio.sleep(LONG_ENOUGH)
        assert ledger.statements == 0
        guard.opened.set()
        assert await claiming

    assert len(lane.runs) == len(tickets)


@pytest.mark.requirement("S68")
async def test_completer_waits_for_the_guard_before_a_record_and_its_event(
    ledger: FaultyPool, guard: ClosedGuard
) -> None:
    completer = Completer(
        pool=ledger,
        publisher=ledger.publisher,
        clock=ledger.clock,
        claimed_runs=ClaimedRuns(),
        start_guard=guard,
    )
    run = await claim_one(ledger)

    async with running(completer.run()):
        completer.complete(run, Success(200, "ok"))
        await guard.reached.wait()
        await asyncio.sleep(LONG_ENOUGH)
        assert (ledger.statements, ledger.publisher.published) == (0, [])
        guard.opened.set()
        await completer.flush()

    assert (ledger.statements, len(ledger.publisher.published)) == (1, 1)


@pytest.mark.requirement("S68")
async def test_lease_keeper_waits_for_the_guard_before_a_renewal(
    ledger: FaultyPool, guard: ClosedGuard
) -> None:
    claimed_runs = ClaimedRuns()
    leases = LeaseKeeper(
        pool=ledger,
        claimed_runs=claimed_runs,
        start_guard=guard,
        stop_requests=StopRequestHandler(
            pool=ledger,
            publisher=ledger.publisher,
            clock=ledger.clock,
            claimed_runs=claimed_runs,
        ),
        publisher=ledger.publisher,
        clock=ledger.clock,
    )
    run = await claim_one(ledger)
    run.renewed_at = old = monotonic() - RENEW_AFTER
    claimed_runs.add([run])

    async with running(leases.run()):
        await guard.reached.wait()
        await asyncio.sleep(LONG_ENOUGH)
        assert ledger.statements == 0
        guard.opened.set()
        while run.renewed_at == old:  # noqa: ASYNC110  # a renewal has no event
            await asyncio.sleep(0)
