"""Staging: rows and tickets in one transaction, published before it commits."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.events import tell
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.authorising import authorising
from harebell.kernel.clock import Clock, monotonic
from harebell.kernel.db.engine import passing_faults
from harebell.ticker import planning, store
from harebell.ticker.book import Entry
from harebell.ticker.saving import Saved, save_advances
from harebell.ticker.telling import progress_facts
from harebell.ticker.versions import Versions

LONGEST_SLEEP: Final = 15.0  # seconds between passes, whatever is known to come
BUDGET: Final = 0.5  # seconds of planning in one pass: nothing else goes on meanwhile
PAUSE: Final = 0.25  # seconds after a pass that failed

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass did. `full`: it took all that it may take; `left`: its budget was spent."""

    saved: Saved
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
    versions: Versions
    horizon: timedelta
    batch: int
    gap: float
    wake: asyncio.Event
    note: Callable[[Sequence[Entry]], None]
    budget: float = BUDGET
    limit: int = 1  # of the next pass; grows back to `batch`

    async def run(self) -> None:
        """Until cancelled. A pass that fails is repeated in halves, then one row at a time."""
        while True:
            self.wake.clear()
            try:
                may_have_more = await self.one_pass(self.limit)
                self.limit = min(self.batch, self.limit * 2)
                metrics.LAST_TICK.set(self.clock.now().timestamp())
                if not may_have_more:
                    await self._sleep()
            except Transient as error:
                log.warning("staging failed", error=error.code, reason=error.reason)
                self.limit = 1
                await asyncio.sleep(PAUSE)
            except Exception as error:
                log.exception("staging failed", limit=self.limit)
                await self._smaller(error)

    async def one_pass(self, limit: int) -> bool:
        """True when there may be more to stage at once."""
        now = self.clock.now()
        async with authorising(self.pool, self.publisher, self.clock) as authority:
            made = await self._stage(authority.connection, now, limit)
            await authority.publish(made.saved.tickets)
            await failpoint.reach("ticker.before_commit")
        await failpoint.reach("ticker.after_commit")
        self._report(made)
        self.note(made.saved.standing)
        await tell(self.publisher, progress_facts(made.saved, self.clock.now()))
        return made.full or made.left > 0

    async def _stage(self, connection: asyncpg.Connection, now: datetime, limit: int) -> Pass:
        """Overdue work takes at most half of a batch, so that it makes nothing else late."""
        half = max(1, limit // 2)
        until = now + self.horizon
        due = await store.load_due(connection, self.versions, now, half)
        full = len(due) == half
        if room := limit - len(due):
            due += await store.load_due(connection, self.versions, until, room, after=now)
        full = full or len(due) >= limit
        advances = within_budget(due, now, until, self.budget)
        saved = await save_advances(connection, advances, now)
        return Pass(saved, full, left=len(due) - len(advances))

    def _report(self, made: Pass) -> None:
        runs = len(made.saved.tickets)
        metrics.PASSES.labels(made.end).inc()
        if runs:
            metrics.STAGED.inc(runs)
            log.info("staged", runs=runs, end=made.end)
        if made.left:
            log.warning("pass over its budget", seconds=self.budget, left=made.left)

    async def _sleep(self) -> None:
        with passing_faults():
            next_at: datetime | None = await self.pool.fetchval(
                "SELECT min(next_at) FROM schedule_state"
            )
        wait = LONGEST_SLEEP
        if next_at is not None:
            due_in = (next_at - self.horizon - self.clock.now()).total_seconds()
            wait = min(max(due_in, self.gap), LONGEST_SLEEP)
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
            with passing_faults():
                parked = await store.park_next(self.pool, until, reason)
        except Transient as fault:
            log.warning("not parked", error=fault.code, reason=fault.reason)
            await asyncio.sleep(PAUSE)
        else:
            log.error("parked", schedule=str(parked), reason=reason)


def within_budget(
    due: Sequence[Entry], now: datetime, until: datetime, budget: float
) -> list[planning.Advance]:
    """At least one, and no more once the budget is spent: the rest stays due."""
    began = monotonic()
    advances: list[planning.Advance] = []
    for entry in due:
        if advances and monotonic() - began > budget:
            break
        advances.append(planning.advance(entry, now, until))
    return advances
