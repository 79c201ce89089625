"""The stager: passes that stage the runs within the horizon and publish their tickets.

A pass has a planning budget. Tenants whose schedules exceed it are planned after all others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.domain.run_states import ScheduleState
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.messaging import run_log
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.event_wait import wait_until_set
from harebell.storage.engine import translate_db_errors
from harebell.ticker import metrics
from harebell.ticker.events import planning_events
from harebell.ticker.model.planning import plan_schedule
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.next_times import NextTimes
from harebell.ticker.plan_writer import SaveResult, save_planning_steps
from harebell.ticker.stage_spans import record_pass
from harebell.ticker.store import schedules
from harebell.ticker.store.schedules import TenantFilter
from harebell.ticker.store.versions import VersionCache

PLANNING_BUDGET: Final = 0.5  # seconds of planning in one pass, whose transaction holds row locks
PLANNING_SLICE: Final = 0.02  # seconds of planning that block the event loop
MAX_DEFERRED: Final = 100  # tenants, after which the set begins again
MAX_POLL_INTERVAL: Final = 15.0  # seconds between passes
FAILURE_PAUSE: Final = 0.25  # seconds after a failed pass
# A pass plans a schedule by this part of the horizon further, so a frequent one writes its row once
# for many runs. Beside a held snapshot, each lookup of a row reads all its versions.
AHEAD: Final = 1 / 2

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class PlanningBudget:
    """The budget of one pass [s], and the time that the schedules of each tenant used [s]."""

    seconds: float = PLANNING_BUDGET
    used: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def is_spent(self) -> bool:
        """Return whether the pass has planned a schedule and has no time left."""
        return bool(self.used) and sum(self.used.values()) > self.seconds

    async def plan(
        self,
        due: Sequence[ScheduleRecord],
        now: datetime,
        until: datetime,
        *,
        ahead: timedelta = timedelta(0),
    ) -> list[PlanningStep]:
        """Plan schedules until the budget is spent, but at least one in a pass.

        The others stay due. An active schedule without a pending version is planned up to `ahead`
        after `until`.
        """
        slice_end = monotonic() + PLANNING_SLICE
        steps: list[PlanningStep] = []
        for record in due:
            if self.is_spent:
                break
            if monotonic() > slice_end:
                await asyncio.sleep(0)
                slice_end = monotonic() + PLANNING_SLICE
            began = monotonic()
            is_plain = record.state is ScheduleState.ACTIVE and not record.pending
            steps.append(plan_schedule(record, now, until + ahead if is_plain else until))
            self.used[record.version.tenant] += monotonic() - began
        return steps


@dataclass(slots=True)
class DeferredTenants:
    """The tenants whose schedules are planned after those of all other tenants.

    A pass in which the other tenants spend the budget adds the one that used the most of it. A
    pass within its budget removes every tenant.
    """

    tenants: frozenset[str] = frozenset()

    def filters(self) -> Sequence[TenantFilter | None]:
        """Return which schedules a pass loads, in this order. None stands for every schedule."""
        if not self.tenants:
            return (None,)
        return [TenantFilter(sorted(self.tenants), are_included=each) for each in (False, True)]

    def observe(self, budget: PlanningBudget) -> None:
        """Learn from a pass which tenants the next one defers."""
        if not budget.is_spent:
            self.clear()
            return
        others = {name: used for name, used in budget.used.items() if name not in self.tenants}
        if others and sum(others.values()) > budget.seconds:
            kept = self.tenants if len(self.tenants) < MAX_DEFERRED else frozenset()
            self.tenants = kept | {max(others, key=others.__getitem__)}

    def clear(self) -> None:
        """Plan the schedules of every tenant in the order of their times again."""
        self.tenants = frozenset()


@dataclass(frozen=True, slots=True)
class StagingPass:
    """The result of a pass, which is full if it has reached the limit of schedules.

    `unplanned` counts the loaded schedules that the planning budget did not reach.
    """

    saved: SaveResult
    is_full: bool
    unplanned: int

    @property
    def end(self) -> str:
        return "over_budget" if self.unplanned else "full" if self.is_full else "drained"


@dataclass(slots=True, kw_only=True)
class Stager:
    """The staging passes of one ticker. Any number may run at once.

    `on_saved` lowers `next_times` to the saved schedules.

    The stager waits `min_poll_interval` seconds after a pass that is not full.
    Passes with few runs would cost too much otherwise.
    """

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: VersionCache
    horizon: timedelta
    batch: int
    min_poll_interval: float
    next_times: NextTimes
    on_saved: Callable[[Sequence[ScheduleRecord]], None]
    budget: float = PLANNING_BUDGET
    deferred: DeferredTenants = field(default_factory=DeferredTenants)
    limit: int = 1  # of the next pass, which doubles up to `batch`

    async def run(self) -> None:
        """Repeat passes until the task is cancelled.

        After an error the next pass has half the limit, down to one schedule.
        """
        while True:
            try:
                may_have_more = await self.stage_once(self.limit)
                self.limit = min(self.batch, self.limit * 2)
                metrics.LAST_STAGING_PASS.set(self.clock.now().timestamp())
                if not may_have_more:
                    await self._sleep()
            except Transient as error:
                log.warning("staging failed", error=error.code, reason=error.reason)
                self.limit = 1
                await asyncio.sleep(FAILURE_PAUSE)
            except Exception as error:  # any schedule may raise any error
                log.exception("staging failed", limit=self.limit)
                await self._reduce_limit(error)

    async def stage_once(self, limit: int) -> bool:
        """Stage the runs of at most `limit` schedules. Return whether more may be due."""
        now = self.clock.now()
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            result = await self._stage(transaction.connection, now, limit)
            await transaction.publish(result.saved.tickets)
            await failpoint.reach("ticker.before_commit")
        await failpoint.reach("ticker.after_commit")
        self._report(result)
        record_pass(result.saved, started_at=now, ended_at=self.clock.now())
        self.on_saved(result.saved.records)
        await publish_events(self.publisher, planning_events(result.saved, self.clock.now()))
        return result.is_full or result.unplanned > 0

    async def _stage(
        self, connection: asyncpg.Connection, now: datetime, limit: int
    ) -> StagingPass:
        """Plan and save the due schedules, those of the deferred tenants last."""
        budget = PlanningBudget(seconds=self.budget)
        until, ahead = now + self.horizon, self.horizon * AHEAD
        steps: list[PlanningStep] = []
        unplanned, is_full = 0, False
        for each in self.deferred.filters():
            rest = limit - len(steps)
            if budget.is_spent or rest == 0:
                is_full = True
                break
            due, may_have_more = await self._load_due(connection, now, rest, only=each)
            is_full = is_full or may_have_more
            planned = await budget.plan(due, now, until, ahead=ahead)
            steps += planned
            unplanned += len(due) - len(planned)
        self.deferred.observe(budget)
        saved = await save_planning_steps(connection, steps, now=now)
        return StagingPass(saved, is_full, unplanned)

    async def _load_due(
        self,
        connection: asyncpg.Connection,
        now: datetime,
        limit: int,
        *,
        only: schedules.TenantFilter | None,
    ) -> tuple[list[ScheduleRecord], bool]:
        """Load the due schedules, and return whether more may be due.

        Overdue schedules use at most half of the limit, so that they delay no other schedule.
        """
        half = max(1, limit // 2)
        until = now + self.horizon
        mark = self.next_times.mark
        load = partial(schedules.load_due, connection, self.versions, only=only)
        due = await load(now, limit=half, after=mark, plan_until=until)
        is_full = len(due) == half
        if rest := limit - len(due):
            due += await load(until, limit=rest, after=max(now, mark))
        return due, is_full or len(due) >= limit

    def _report(self, result: StagingPass) -> None:
        runs = len(result.saved.tickets)
        metrics.STAGING_PASSES.labels(result.end).inc()
        if runs:
            metrics.RUNS_STAGED.inc(runs)
            log.info("runs staged", runs=runs, end=result.end)
            run_log.log_staged(result.saved.tickets)
        if result.unplanned:
            log.warning(
                "planning budget exceeded",
                seconds=self.budget,
                unplanned=result.unplanned,
                deferred=sorted(self.deferred.tenants),
            )

    async def _sleep(self) -> None:
        """Wait until the next schedule is due, which may be one that is saved during the wait."""
        await self.next_times.read(self.pool, self.clock.now())
        began = monotonic()
        is_lowered = True
        while is_lowered:
            self.next_times.lowered.clear()
            due_in = (self.next_times.known - self.horizon - self.clock.now()).total_seconds()
            waited = monotonic() - began
            wait = min(max(due_in, self.min_poll_interval - waited), MAX_POLL_INTERVAL - waited)
            is_lowered = await wait_until_set(self.next_times.lowered, wait)

    async def _reduce_limit(self, error: Exception) -> None:
        """Halve the limit, or mark a schedule that fails alone as errored.

        That is the schedule with the earliest time of all, so no tenant may be deferred.
        """
        self.deferred.clear()
        if self.limit > 1:
            self.limit //= 2
            return
        reason = f"cannot be staged: {type(error).__name__}"
        until = self.clock.now() + self.horizon
        try:
            with translate_db_errors():
                schedule_id = await schedules.mark_next_errored(self.pool, until, reason)
        except Transient as failure:
            log.warning("schedule not marked as errored", error=failure.code, reason=failure.reason)
            await asyncio.sleep(FAILURE_PAUSE)
        else:
            log.error("schedule marked as errored", schedule=str(schedule_id), reason=reason)
