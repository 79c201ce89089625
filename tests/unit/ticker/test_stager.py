"""Staging passes on the in-memory ledger: the share of overdue schedules, and the commit."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from tests.fakes.ledger.ledger import open_ledger
from tests.fakes.ledger.pool import Pool
from tests.fakes.ledger.runs import RUNS
from tests.fakes.ledger.schedules import STATES, VERSIONS
from tests.fakes.ledger.store import Transaction
from tests.fakes.publisher import FakePublisher
from tests.fakes.schedules import HORIZON
from tests.fakes.stored_schedules import TENANT, schedule_ids, store_schedules

from harebell.contract.errors import BrokerUnavailable
from harebell.contract.types import LATEST
from harebell.domain.run_states import ScheduleState
from harebell.runtime.clock import Clock
from harebell.storage.engine import database_time
from harebell.ticker.next_times import NextTimes
from harebell.ticker.overdue_schedules import OverdueSearch
from harebell.ticker.stager import PLANNING_BUDGET, Stager
from harebell.ticker.store.versions import VersionCache

HOUR = timedelta(hours=1)
TIMEOUT = 30.0  # seconds
SPENT = -1.0  # seconds


@dataclass
class StagerHarness:
    """A stager, its ledger and its publisher."""

    ledger: Pool = field(default_factory=open_ledger)
    publisher: FakePublisher = field(default_factory=FakePublisher)

    async def open(self, *, batch: int = 100) -> Stager:
        clock = Clock(lambda: database_time(cast("Any", self.ledger)))
        await clock.refresh()
        return Stager(
            pool=cast("Any", self.ledger),
            publisher=self.publisher,
            clock=clock,
            versions=VersionCache(),
            horizon=HORIZON,
            batch=batch,
            min_poll_interval=0.25,
            next_times=NextTimes(),
            on_saved=lambda _: None,
        )

    async def store_overdue(self, count: int, tenant: str = TENANT) -> list[UUID]:
        """Store schedules whose next time was an hour ago."""
        ids = schedule_ids(count)
        now = self.ledger.store.now()
        await store_schedules(self.ledger, ids, {"every": "1h"}, now - 2 * HOUR, tenant=tenant)
        return ids

    async def store_upcoming(self, count: int, wait: str = "30s") -> list[UUID]:
        """Store schedules whose only time is in the future."""
        ids = schedule_ids(count, first=1_000)
        await store_schedules(self.ledger, ids, {"after": wait}, self.ledger.store.now())
        return ids

    @property
    def staged(self) -> set[UUID]:
        """The schedules with a committed run."""
        return {key.schedule_id for key in self.ledger.store.tables[RUNS]}

    def next_at(self, schedule: UUID) -> datetime | None:
        next_at: datetime | None = self.ledger.store.tables[STATES][schedule]["next_at"]
        return next_at


@pytest.fixture
def harness() -> StagerHarness:
    return StagerHarness()


@pytest.mark.parametrize(("limit", "overdue", "upcoming"), [(8, 4, 4), (7, 3, 4), (2, 1, 1)])
async def test_overdue_schedules_take_at_most_half_of_a_pass(
    harness: StagerHarness, limit: int, overdue: int, upcoming: int
) -> None:
    late, soon = await harness.store_overdue(10), await harness.store_upcoming(10)

    await (await harness.open()).stage_once(limit)

    assert len(harness.staged & set(late)) == overdue
    assert len(harness.staged & set(soon)) == upcoming


async def test_upcoming_schedules_take_the_part_that_overdue_schedules_leave(
    harness: StagerHarness,
) -> None:
    late, soon = await harness.store_overdue(1), await harness.store_upcoming(10)

    await (await harness.open()).stage_once(8)

    assert harness.staged >= set(late)
    assert len(harness.staged & set(soon)) == 7


@pytest.mark.requirement("P6")
async def test_schedules_of_a_costly_tenant_are_planned_last(harness: StagerHarness) -> None:
    costly = await harness.store_overdue(3, tenant="acme")
    other = await harness.store_upcoming(2)
    stager = await harness.open()
    stager.budget = SPENT  # so each pass plans one schedule

    await stager.stage_once(100)
    first = set(harness.staged)
    await stager.stage_once(100)

    assert first < set(costly)
    assert harness.staged - first < set(other)
    await run_until(stager, lambda: harness.staged == {*costly, *other})
    stager.budget = PLANNING_BUDGET
    await stager.stage_once(100)
    assert stager.deferred.tenants == set()


@pytest.mark.parametrize(("limit", "has_more"), [(3, True), (6, True), (8, False)])
async def test_pass_reports_whether_more_schedules_may_be_due(
    harness: StagerHarness, limit: int, *, has_more: bool
) -> None:
    await harness.store_upcoming(6)

    assert await (await harness.open()).stage_once(limit) is has_more


async def test_pass_stages_the_times_within_the_horizon_only(harness: StagerHarness) -> None:
    near, far = await harness.store_upcoming(1, "60s"), schedule_ids(1)
    await store_schedules(harness.ledger, far, {"after": "120s"}, harness.ledger.store.now())

    await (await harness.open()).stage_once(10)

    assert harness.staged == set(near)
    assert [ticket.key.schedule_id for ticket in harness.publisher.tickets] == near


async def test_pass_reads_no_schedule_below_the_mark(harness: StagerHarness) -> None:
    soon = await harness.store_upcoming(1)
    stager = await harness.open()
    await stager.next_times.read(cast("Any", harness.ledger), harness.ledger.store.now())
    late = await harness.store_overdue(1)  # by another ticker

    await stager.stage_once(10)
    before = set(harness.staged)
    stager.next_times.observe([harness.next_at(late[0])])
    await stager.stage_once(10)

    assert before == set(soon)
    assert harness.staged == {*soon, *late}


async def test_overdue_schedule_of_another_ticker_is_found_below_the_mark(
    harness: StagerHarness,
) -> None:
    await harness.store_upcoming(1)
    stager, pool = await harness.open(), cast("Any", harness.ledger)
    await stager.next_times.read(pool, harness.ledger.store.now())
    late = await harness.store_overdue(2)

    await OverdueSearch(pool, stager.next_times).search()
    await stager.stage_once(10)

    assert harness.staged >= set(late)
    assert REGISTRY.get_sample_value("harebell_overdue_schedules") == 2


async def test_saved_schedule_ends_the_wait_only_when_it_is_due(
    harness: StagerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harebell.ticker.stager.MAX_POLL_INTERVAL", HOUR.total_seconds())
    await harness.store_upcoming(1, "1h")
    stager, passes = await harness.open(), list[None]()
    stager.on_saved = lambda _: passes.append(None)

    async with running(stager):
        await wait_for(lambda: stager.next_times.known < LATEST)
        late = await harness.store_overdue(1)
        stager.next_times.observe([stager.next_times.known - HOUR / 2, None])
        await asyncio.sleep(2 * stager.min_poll_interval)
        before = len(passes)
        stager.next_times.observe([harness.next_at(late[0])])
        await wait_for(lambda: harness.staged == set(late))

    assert before == 1


async def test_tickets_are_published_before_the_commit(harness: StagerHarness) -> None:
    schedules = await harness.store_upcoming(3)
    committed: list[set[UUID]] = []
    harness.publisher.before_publish = lambda: committed.append(harness.staged)

    await (await harness.open()).stage_once(10)

    assert committed
    assert set.union(*committed) == set()
    assert harness.staged == set(schedules)
    assert {ticket.key.schedule_id for ticket in harness.publisher.tickets} == set(schedules)


async def test_pass_stages_nothing_when_its_tickets_cannot_be_published(
    harness: StagerHarness,
) -> None:
    (schedule,) = await harness.store_upcoming(1)
    next_at = harness.next_at(schedule)
    stager = await harness.open()
    harness.publisher.failures = 1

    with pytest.raises(BrokerUnavailable):
        await stager.stage_once(10)

    assert harness.staged == set()
    assert harness.next_at(schedule) == next_at
    await stager.stage_once(10)
    assert harness.staged == {schedule}


async def test_unreadable_schedule_becomes_errored_and_delays_no_other_schedule(
    harness: StagerHarness,
) -> None:
    damaged, *others = await harness.store_overdue(5)
    transaction = Transaction(harness.ledger.store, harness)
    version = transaction.get(VERSIONS, (damaged, 1))
    transaction.put(VERSIONS, (damaged, 1), version | {"definition": "{}"})
    transaction.commit()
    states = harness.ledger.store.tables[STATES]
    stager = await harness.open(batch=8)

    await run_until(stager, lambda: states[damaged]["state"] == ScheduleState.ERRORED)
    await run_until(stager, lambda: harness.staged == set(others))

    assert states[damaged]["next_at"] is None


async def run_until(stager: Stager, is_done: Callable[[], bool]) -> None:
    async with running(stager):
        await wait_for(is_done)


async def wait_for(is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not is_done():  # noqa: ASYNC110  # the ledger sets no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(stager: Stager) -> AsyncIterator[None]:
    task = asyncio.create_task(stager.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
