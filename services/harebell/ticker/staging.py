"""Staging: rows and tickets in one transaction, published before it commits."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.bundle import waiting
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.clock import Clock, monotonic
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import staging
from harebell.kernel.ledger import ScheduleState
from harebell.kernel.routing import Routed
from harebell.ticker import planning, store
from harebell.ticker.book import Entry

SLOW_COMMIT: Final = 1.0  # seconds; tickets may have outrun it and been dropped as phantoms
LONGEST_SLEEP: Final = 15.0  # seconds between passes, whatever is known to come
PASS_GAP: Final = 0.25  # seconds between passes that are not full: few runs each is dear

log = structlog.get_logger()


async def write_advances(
    connection: asyncpg.Connection,
    advances: Sequence[planning.Advance],
    now: datetime,
    *,
    beside: Sequence[planning.Triggered] = (),
) -> tuple[list[Entry], list[Routed]]:
    """Insert what is owed and what is not; the schedules as they stand then, and the tickets.

    `beside`: runs that no timetable owes, of schedules that have counted them already.
    """
    owed = [run for each in advances for run in each.owed]
    extra = [each.owed for each in beside]
    await staging.skip(connection, [skip for each in advances for skip in each.not_owed])
    staged = await staging.stage(connection, [*owed, *extra]) if owed or extra else {}
    doubtful = [key for each in advances for key in planning.doubtful(each.entry, now)]
    ended = set(doubtful) - await store.still_open(connection, doubtful)
    standing = [planning.opened(each, staged, ended) for each in advances]
    versions = {run.key: each.entry.version for each in advances for run in each.owed}
    versions |= {each.owed.key: each.version for each in beside}
    return standing, planning.tickets(staged, [*owed, *extra], versions)


@dataclass(slots=True)
class Stager:
    """One ticker's passes over what is due within the horizon. Any number may run at once."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: store.Versions
    horizon: timedelta
    batch: int
    wake: asyncio.Event
    limit: int = 1  # of the next pass; grows back to `batch`

    async def run(self) -> None:
        """Until cancelled. A pass that fails is repeated in halves, then one row at a time."""
        while True:
            self.wake.clear()
            try:
                full = await self.one_pass(self.limit)
                self.limit = min(self.batch, self.limit * 2)
                metrics.LAST_TICK.set(self.clock.now().timestamp())
                if not full:
                    await self._sleep()
            except Transient as error:
                log.warning("staging failed", error=error.code, reason=error.reason)
                self.limit = 1
                await asyncio.sleep(PASS_GAP)
            except Exception:
                log.exception("staging failed", limit=self.limit)
                await self._smaller()

    async def one_pass(self, limit: int) -> bool:
        """True when there may be more to stage at once."""
        now = self.clock.now()
        with passing_faults():
            async with self.pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    tickets, full = await self._stage(connection, now, limit)
                    await self._publish(tickets)
                except BaseException:
                    await asyncio.shield(transaction.rollback())
                    raise
                await self._commit(transaction, tickets)
        if tickets:
            metrics.STAGED.inc(len(tickets))
            log.info("staged", runs=len(tickets))
        return full

    async def _stage(
        self, connection: asyncpg.Connection, now: datetime, limit: int
    ) -> tuple[list[Routed], bool]:
        """Overdue work takes at most half of a batch, so that it makes nothing else late."""
        half = max(1, limit // 2)
        until = now + self.horizon
        due = await store.load_due(connection, self.versions, now, half)
        full = len(due) == half
        if room := limit - len(due):
            due += await store.load_due(connection, self.versions, until, room, after=now)
        full = full or len(due) >= limit
        advances = [planning.advance(entry, now, until) for entry in due]
        standing, tickets = await write_advances(connection, advances, now)
        await store.save_states(connection, standing)
        return tickets, full

    async def _publish(self, tickets: Sequence[Routed]) -> None:
        await self.publisher.publish_all(waiting(tickets, self.clock.now()))
        await failpoint.reach("ticker.before_commit")

    async def _commit(
        self, transaction: asyncpg.transaction.Transaction, tickets: Sequence[Routed]
    ) -> None:
        """A commit that was slow, or whose result is unknown, is followed by the tickets again."""
        started = monotonic()
        try:
            await transaction.commit()
        finally:
            if monotonic() - started > SLOW_COMMIT:
                await self._publish(tickets)
        await failpoint.reach("ticker.after_commit")

    async def _sleep(self) -> None:
        with passing_faults():
            next_at: datetime | None = await self.pool.fetchval(
                "SELECT min(next_at) FROM schedule_state"
            )
        wait = LONGEST_SLEEP
        if next_at is not None:
            due_in = (next_at - self.horizon - self.clock.now()).total_seconds()
            wait = min(max(due_in, PASS_GAP), LONGEST_SLEEP)
        try:
            await asyncio.wait_for(self.wake.wait(), wait)
        except TimeoutError:
            return

    async def _smaller(self) -> None:
        """Halve the batch; what fails alone is parked with its reason."""
        if self.limit > 1:
            self.limit //= 2
            return
        with passing_faults():
            async with self.pool.acquire() as connection, connection.transaction():
                until = self.clock.now() + self.horizon
                entries = await store.load_due(connection, self.versions, until, 1)
                parked = [
                    replace(e, state=ScheduleState.PARKED, next_at=None, reason="cannot be staged")
                    for e in entries
                ]
                await store.save_states(connection, parked)
        for entry in parked:
            log.error("parked", schedule=str(entry.id), reason=entry.reason)
