"""The rescuer in virtual time: when a lease counts as expired, and when a ticket counts as lost."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import asyncpg
import pytest
from tests.fakes.ledger.ledger import open_client
from tests.fakes.ledger.pool import Effect, Pool
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.store import Store
from tests.fakes.publisher import FakePublisher
from tests.fakes.schedules import HORIZON
from tests.fakes.stored_schedules import schedule_ids, store_schedules
from tests.fakes.tickets import NINE
from tests.simulation.loop import StoppableProcess, VirtualLoop, virtual_time

from harebell.domain.run_states import RunState
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import database_time
from harebell.storage.runs import claims, delegation
from harebell.ticker.next_times import NextTimes
from harebell.ticker.recovery.rescuer import Rescuer
from harebell.ticker.stager import Stager
from harebell.ticker.store.versions import VersionCache

HOLDER = "executor-1"
LEASE = 5.0  # seconds, of a claim without renewals


@dataclass
class FakeLiveness:
    """The answers about executors and queues. The work queues are empty by default."""

    is_executor_gone: bool = False
    is_empty: bool = True
    has_report_readers: bool = True

    async def is_gone(self, _: str) -> bool:
        return self.is_executor_gone

    async def is_queue_empty(self, *_: str) -> bool:
        return self.is_empty

    async def are_reports_read(self) -> bool:
        return self.has_report_readers


@dataclass(kw_only=True)
class RecoveryHarness:
    """A ledger with one run, and a rescuer whose connection to the ledger can fail."""

    loop: VirtualLoop
    is_database_away: bool = False
    liveness: FakeLiveness = field(default_factory=FakeLiveness)
    publisher: FakePublisher = field(default_factory=FakePublisher)
    process: StoppableProcess = field(default_factory=StoppableProcess)
    tasks: "list[asyncio.Task[None]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.now)
        self.store.started_at = NINE - timedelta(days=1)
        self.ledger = Pool(self.store)

    def now(self) -> datetime:
        return NINE + timedelta(seconds=self.loop.time())

    async def _call(self, _: str, effect: Effect) -> Any:
        if self.is_database_away:
            raise asyncpg.ConnectionDoesNotExistError("The database is away.")
        return await effect()

    async def start(self) -> Rescuer:
        """Start the loops of a rescuer in a process that can stop."""
        pool = cast("Any", open_client(self.store, self._call, self))
        clock = Clock(lambda: database_time(pool))
        await clock.refresh()
        rescuer = Rescuer(
            pool=pool,
            publisher=self.publisher,
            clock=clock,
            liveness=cast("Any", self.liveness),
            request_reconciliation=lambda _: None,
        )
        for run in (rescuer.run_lease_recovery, rescuer.run_ticket_recovery):
            self.process.call_soon(partial(self._start_task, run))
        await asyncio.sleep(0)
        return rescuer

    async def stage(self, wait: str = "1s", **fields: Any) -> None:
        """Stage one run, whose ticket is not among the published tickets of the rescuer."""
        await store_schedules(self.ledger, schedule_ids(1), {"after": wait}, self.now(), **fields)
        clock = Clock(lambda: database_time(cast("Any", self.ledger)))
        await clock.refresh()
        stager = Stager(
            pool=cast("Any", self.ledger),
            publisher=FakePublisher(),
            clock=clock,
            versions=VersionCache(),
            horizon=HORIZON,
            batch=10,
            min_poll_interval=1,
            next_times=NextTimes(),
            on_saved=lambda _: None,
        )
        await stager.stage_once(10)

    async def claim(self, lease: float = LEASE) -> claims.Claim:
        """Claim the run, whose holder then renews its lease only on request."""
        run = self.run
        key = claims.ClaimKey(
            key=run.key,
            seq=run.seq,
            version=run.version,
            override=None,
            lease=lease,
            due_at=run.due_at,
        )
        claimed = await claims.claim(cast("Any", self.ledger), [key], HOLDER)
        return claimed[run.key]

    @property
    def run(self) -> Run:
        (run,) = self.store.tables[RUNS].values()
        found: Run = run
        return found

    @property
    def is_running(self) -> bool:
        return self.run.state is RunState.RUNNING

    def _start_task(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks.append(asyncio.ensure_future(run()))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


Test = Callable[[RecoveryHarness], Coroutine[Any, Any, None]]


@pytest.fixture
def in_virtual_time() -> Generator[Callable[[Test], None]]:
    """Return a function that runs a test in virtual time."""
    with virtual_time() as loop:

        async def run(test: Test) -> None:
            harness = RecoveryHarness(loop=loop)
            try:
                await test(harness)
            finally:
                await harness.close()

        yield lambda test: loop.run_until_complete(run(test))


InVirtualTime = Callable[[Test], None]


def test_expired_lease_is_recovered_after_15_s_of_service(in_virtual_time: InVirtualTime) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await harness.stage()
        await harness.claim()
        await asyncio.sleep(14)
        assert harness.is_running  # the lease has expired, but the rescuer is new

        await asyncio.sleep(6)

        assert harness.run.state is RunState.RETRYING
        assert [ticket.seq for ticket in harness.publisher.tickets] == [harness.run.seq]

    in_virtual_time(test)


def test_lease_in_force_is_never_recovered(in_virtual_time: InVirtualTime) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await asyncio.sleep(60)
        await harness.stage()
        claim = await harness.claim()

        for _ in range(30):
            await asyncio.sleep(1)
            await claims.renew(cast("Any", harness.ledger), [claim])

        assert harness.is_running

    in_virtual_time(test)


@pytest.mark.requirement("S83")
def test_leases_have_their_full_time_after_an_outage_of_the_database(
    in_virtual_time: InVirtualTime,
) -> None:
    """An outage also prevents the renewals of living executors."""

    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await asyncio.sleep(60)
        await harness.stage()
        await harness.claim()
        harness.is_database_away = True
        await asyncio.sleep(20)
        harness.is_database_away = False
        await asyncio.sleep(12)
        assert harness.is_running

        await asyncio.sleep(10)

        assert harness.run.state is RunState.RETRYING

    in_virtual_time(test)


def test_leases_have_their_full_time_after_a_freeze_of_the_rescuer(
    in_virtual_time: InVirtualTime,
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await asyncio.sleep(60)
        await harness.stage()
        await harness.claim()
        harness.process.stop()
        await asyncio.sleep(20)
        harness.process.resume(harness.loop)
        await asyncio.sleep(12)
        assert harness.is_running

        await asyncio.sleep(10)

        assert harness.run.state is RunState.RETRYING

    in_virtual_time(test)


def test_leases_have_their_full_time_after_a_restart_of_the_database(
    in_virtual_time: InVirtualTime,
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await asyncio.sleep(60)
        await harness.stage()
        await harness.claim()
        harness.store.started_at = harness.now()
        await asyncio.sleep(14)
        assert harness.is_running

        await asyncio.sleep(6)

        assert harness.run.state is RunState.RETRYING

    in_virtual_time(test)


def test_leases_have_their_full_time_after_a_step_of_the_clock(
    in_virtual_time: InVirtualTime,
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        rescuer = await harness.start()
        await asyncio.sleep(60)
        await harness.stage()
        await harness.claim()
        rescuer.clock.stepped_at = monotonic()
        await asyncio.sleep(14)
        assert harness.is_running

        await asyncio.sleep(8)

        assert harness.run.state is RunState.RETRYING

    in_virtual_time(test)


@pytest.mark.parametrize("is_gone", [False, True])
def test_silent_executor_loses_its_runs_early_only_without_its_control_queue(
    in_virtual_time: InVirtualTime, *, is_gone: bool
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await asyncio.sleep(60)
        await harness.stage()
        await harness.claim(lease=30.0)
        harness.liveness.is_executor_gone = is_gone

        await asyncio.sleep(10)

        assert harness.is_running is not is_gone

    in_virtual_time(test)


def test_lost_ticket_is_published_again_before_the_commit(in_virtual_time: InVirtualTime) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await harness.stage()
        staged_at, committed = harness.run.staged_at, list[Any]()
        harness.publisher.before_publish = lambda: committed.append(harness.run.staged_at)
        await asyncio.sleep(4)
        assert not harness.publisher.tickets

        await asyncio.sleep(7)

        assert [ticket.seq for ticket in harness.publisher.tickets] == [harness.run.seq]
        assert committed == [staged_at]
        assert harness.run.staged_at != staged_at

    in_virtual_time(test)


def test_ticket_that_may_be_queued_is_published_again_only_after_a_minute(
    in_virtual_time: InVirtualTime,
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        harness.liveness.is_empty = False
        await harness.start()
        await harness.stage()
        await asyncio.sleep(55)
        assert not harness.publisher.tickets

        await asyncio.sleep(12)

        assert len(harness.publisher.tickets) == 1

    in_virtual_time(test)


def test_lost_run_past_its_expiry_expires(in_virtual_time: InVirtualTime) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await harness.stage(expires_after="3s")

        await asyncio.sleep(15)

        assert harness.run.state is RunState.EXPIRED
        assert not harness.publisher.tickets

    in_virtual_time(test)


async def delegate(harness: RecoveryHarness, heartbeat: float) -> None:
    """Stage, claim and delegate the run."""
    await harness.stage()
    claim = await harness.claim()
    run = delegation.DelegatedRun(
        key=claim.key,
        token=claim.token,
        started_at=harness.now(),
        heartbeat=heartbeat,
        max_duration=86_400.0,
    )
    await delegation.delegate(cast("Any", harness.ledger), [run])


@pytest.mark.requirement("S59")
def test_worker_is_not_gone_although_it_has_no_control_queue(
    in_virtual_time: InVirtualTime,
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await asyncio.sleep(20)
        harness.liveness.is_executor_gone = True
        await delegate(harness, 60)
        await asyncio.sleep(50)
        assert harness.is_running

        await asyncio.sleep(20)

        assert not harness.is_running

    in_virtual_time(test)


@pytest.mark.requirement("S59")
def test_worker_has_its_full_lease_after_its_heartbeats_were_not_read(
    in_virtual_time: InVirtualTime,
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.start()
        await delegate(harness, 60)
        harness.liveness.has_report_readers = False
        await asyncio.sleep(300)
        assert harness.is_running
        harness.liveness.has_report_readers = True
        await asyncio.sleep(55)
        assert harness.is_running

        await asyncio.sleep(10)

        assert not harness.is_running

    in_virtual_time(test)
