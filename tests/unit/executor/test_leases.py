"""Lease renewals of the executor in virtual time: the age of a lease, and its stop requests."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from tests.fakes.ledger.ledger import open_client, open_ledger
from tests.fakes.ledger.pool import Effect, Pool
from tests.fakes.ledger.runs import RUNS, amend
from tests.fakes.ledger.store import Transaction
from tests.fakes.publisher import FakePublisher
from tests.fakes.tickets import NINE, ticket
from tests.simulation.loop import virtual_time

from harebell.contract.ids import RunKey
from harebell.domain.run_states import NewRun, Placement, Reason
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.start_guard import StartGuard
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import database_time
from harebell.storage.runs import claims, staging

LEASE = 15.0
DELAY = 2.0  # seconds of a slow renewal


@dataclass
class RecordingStopRequests:
    """A handler that records the stop requests."""

    reasons: dict[RunKey, str] = field(default_factory=dict)

    async def apply(self, reasons: Mapping[RunKey, str]) -> None:
        self.reasons |= reasons


@dataclass
class LeaseHarness:
    """A ledger with one claimed run, and a lease keeper whose renewals are slow."""

    now: Callable[[], datetime]
    stop_requests: RecordingStopRequests = field(default_factory=RecordingStopRequests)
    publisher: FakePublisher = field(default_factory=FakePublisher)

    def __post_init__(self) -> None:
        self.ledger: Pool = open_ledger(self.now)
        self.pool: Any = open_client(self.ledger.store, self._slow, self)
        self.keeper = LeaseKeeper(
            pool=self.pool,
            claimed_runs=ClaimedRuns(),
            start_guard=StartGuard(),
            stop_requests=cast("Any", self.stop_requests),
            publisher=self.publisher,
            clock=Clock(lambda: database_time(cast("Any", self.ledger))),
        )

    async def _slow(self, _: str, effect: Effect) -> Any:
        await asyncio.sleep(DELAY / 2)
        result = await effect()
        await asyncio.sleep(DELAY / 2)
        return result

    async def claim(self) -> ClaimedRun:
        run = ticket()
        connection = cast("Any", self.ledger)
        place = Placement("default", run.version, run.pool, run.lane, run.priority)
        await staging.stage(connection, [NewRun(run.run_key, place, run.due_at, None)])
        key = claims.ClaimKey(
            key=run.run_key, seq=1, version=1, override=None, lease=LEASE, due_at=run.due_at
        )
        (claim,) = (await claims.claim(connection, [key], "executor-1")).values()
        claimed = ClaimedRun(
            ticket=run,
            token=claim.token,
            attempt=claim.attempt,
            lease=LEASE,
            renewed_at=monotonic(),
        )
        self.keeper.claimed_runs.add([claimed])
        return claimed

    def change_row(self, run: ClaimedRun, **columns: Any) -> None:
        transaction = Transaction(self.ledger.store, self)
        amend(transaction, transaction.get(RUNS, run.key), **columns)
        transaction.commit()


def run_in_virtual_time(test: Callable[[LeaseHarness], Coroutine[Any, Any, None]]) -> None:
    with virtual_time() as loop:
        harness = LeaseHarness(lambda: NINE + timedelta(seconds=loop.time()))
        loop.run_until_complete(test(harness))


def test_age_of_a_lease_counts_from_the_time_before_its_renewal() -> None:
    """The ledger renews the lease at an unknown time during the call."""

    async def test(harness: LeaseHarness) -> None:
        run = await harness.claim()
        await asyncio.sleep(1)
        sent_at = monotonic()

        await harness.keeper.renew([run])

        assert monotonic() == sent_at + DELAY
        assert run.renewed_at == sent_at

    run_in_virtual_time(test)


def test_rejected_renewal_leaves_the_lease_old() -> None:
    async def test(harness: LeaseHarness) -> None:
        run = await harness.claim()
        renewed_at = run.renewed_at
        harness.change_row(run, seq=run.token + 1)  # another executor has claimed the run
        await asyncio.sleep(1)

        await harness.keeper.renew([run])

        assert run.renewed_at == renewed_at
        assert harness.stop_requests.reasons == {}

    run_in_virtual_time(test)


def test_renewal_passes_the_stop_request_of_its_run_on() -> None:
    async def test(harness: LeaseHarness) -> None:
        run = await harness.claim()
        harness.change_row(run, stop_requested_at=harness.now(), reason=Reason.REPLACED)

        await harness.keeper.renew([run])

        assert harness.stop_requests.reasons == {run.key: Reason.REPLACED}

    run_in_virtual_time(test)
