"""Staging: rows and tickets in one transaction, published before it commits."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.ticker import metrics
from harebell.ticker.events import planning_events
from harebell.ticker.model import planning
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.store import schedules
from harebell.ticker.store.save import SaveResult, save_planning_steps
from harebell.ticker.store.versions import VersionCache

MAX_POLL_INTERVAL: Final = 15.0  # seconds between passes, whatever is known to come
PLANNING_BUDGET: Final = 0.5  # seconds of planning in one pass: nothing else goes on meanwhile
FAILURE_PAUSE: Final = 0.25  # seconds after a pass that failed

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StagingPass:
    """What a pass did. `full`: it took all that it may take; `left`: its budget was spent."""

    saved: SaveResult
    full: bool
    left: int

    @property
    def end(self) -> str:
        return "over_budget" if self.left else "full" if self.full else "drained"


@dataclass(slots=True)
class Stager:
    """One ticker's passes over what is due within the horizon. Any number may run at once.

    `gap`: seconds at least between passes that are not full, for few runs each is dear.
    """

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: VersionCache
    horizon: timedelta
    batch: int
    min_poll_interval: float
    wake: asyncio.Event
    on_saved: Callable[[Sequence[ScheduleRecord]], None]
    budget: float = PLANNING_BUDGET
    limit: int = 1  # of the next pass; grows back to `batch`

    async def run(self) -> None:
        """Until cancelled. A pass that fails is repeated in halves, then one row at a time."""
        while True:
            self.wake.clear()
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
            except Exception as error:  # judged where deliveries are handled
                log.exception("staging failed", limit=self.limit)
                await self._smaller(error)

    async def stage_once(self, limit: int) -> bool:
        """True when there may be more to stage at once."""
        now = self.clock.now()
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            made = await self._stage(authority.connection, now, limit)
            await authority.publish(made.saved.tickets)
            await failpoint.reach("ticker.before_commit")
        await failpoint.reach("ticker.after_commit")
        self._report(made)
        self.on_saved(made.saved.records)
        await publish_events(self.publisher, planning_events(made.saved, self.clock.now()))
        return made.full or made.left > 0

    async def _stage(
        self, connection: asyncpg.Connection, now: datetime, limit: int
    ) -> StagingPass:
        """Overdue work takes at most half of a batch, so that it makes nothing else late."""
        half = max(1, limit // 2)
        until = now + self.horizon
        due = await schedules.load_due(connection, self.versions, now, half)
        full = len(due) == half
        if room := limit - len(due):
            due += await schedules.load_due(connection, self.versions, until, room, after=now)
        full = full or len(due) >= limit
        advances = within_budget(due, now, until, self.budget)
        saved = await save_planning_steps(connection, advances, now)
        return StagingPass(saved, full, left=len(due) - len(advances))

    def _report(self, made: StagingPass) -> None:
        runs = len(made.saved.tickets)
        metrics.STAGING_PASSES.labels(made.end).inc()
        if runs:
            metrics.RUNS_STAGED.inc(runs)
            log.info("staged", runs=runs, end=made.end)
        if made.left:
            log.warning("pass over its budget", seconds=self.budget, left=made.left)

    async def _sleep(self) -> None:
        with translate_db_errors():
            next_at: datetime | None = await self.pool.fetchval(
                "SELECT min(next_at) FROM schedule_state"
            )
        wait = MAX_POLL_INTERVAL
        if next_at is not None:
            due_in = (next_at - self.horizon - self.clock.now()).total_seconds()
            wait = min(max(due_in, self.min_poll_interval), MAX_POLL_INTERVAL)
        try:
            await asyncio.wait_for(self.wake.wait(), wait)
        except TimeoutError:
            return

    async def _smaller(self, error: Exception) -> None:
        """Halve the batch; what fails alone is parked with its reason."""
        if self.limit > 1:
            self.limit //= 2
            return
        reason = f"cannot be staged: {type(error).__name__}"
        until = self.clock.now() + self.horizon
        try:
            with translate_db_errors():
                parked = await schedules.mark_next_errored(self.pool, until, reason)
        except Transient as fault:
            log.warning("not parked", error=fault.code, reason=fault.reason)
            await asyncio.sleep(FAILURE_PAUSE)
        else:
            log.error("parked", schedule=str(parked), reason=reason)


def within_budget(
    due: Sequence[ScheduleRecord], now: datetime, until: datetime, budget: float
) -> list[planning.PlanningStep]:
    """At least one, and no more once the budget is spent: the rest stays due."""
    began = monotonic()
    advances: list[planning.PlanningStep] = []
    for entry in due:
        if advances and monotonic() - began > budget:
            break
        advances.append(planning.plan_schedule(entry, now, until))
    return advances
