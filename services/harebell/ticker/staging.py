"""Staging: rows and tickets in one transaction, published before it commits."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.bundle import waiting
from harebell.kernel.amqp.events import tell
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.clock import Clock, monotonic
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.routing import Routed
from harebell.ticker import planning, store
from harebell.ticker.saving import Saved, save_advances
from harebell.ticker.telling import progress_facts
from harebell.ticker.versions import Versions

SLOW_COMMIT: Final = 1.0  # seconds; tickets may have outrun it and been dropped as phantoms
LONGEST_SLEEP: Final = 15.0  # seconds between passes, whatever is known to come
PASS_GAP: Final = 0.25  # seconds between passes that are not full: few runs each is dear

log = structlog.get_logger()


@dataclass(slots=True)
class Stager:
    """One ticker's passes over what is due within the horizon. Any number may run at once."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: Versions
    horizon: timedelta
    batch: int
    wake: asyncio.Event
    ask_review: Callable[[Iterable[UUID]], None]
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
            except Exception as error:
                log.exception("staging failed", limit=self.limit)
                await self._smaller(error)

    async def one_pass(self, limit: int) -> bool:
        """True when there may be more to stage at once."""
        now = self.clock.now()
        with passing_faults():
            async with self.pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    saved, full = await self._stage(connection, now, limit)
                    await self._publish(saved.tickets)
                except BaseException:
                    await asyncio.shield(transaction.rollback())
                    raise
                await self._commit(transaction, saved.tickets)
        if saved.tickets:
            metrics.STAGED.inc(len(saved.tickets))
            log.info("staged", runs=len(saved.tickets))
        self.ask_review(planning.to_review(saved.standing, now))
        await tell(self.publisher, progress_facts(saved, self.clock.now()))
        return full

    async def _stage(
        self, connection: asyncpg.Connection, now: datetime, limit: int
    ) -> tuple[Saved, bool]:
        """Overdue work takes at most half of a batch, so that it makes nothing else late."""
        half = max(1, limit // 2)
        until = now + self.horizon
        due = await store.load_due(connection, self.versions, now, half)
        full = len(due) == half
        if room := limit - len(due):
            due += await store.load_due(connection, self.versions, until, room, after=now)
        full = full or len(due) >= limit
        advances = [planning.advance(entry, now, until) for entry in due]
        return await save_advances(connection, advances, now), full

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
            await asyncio.sleep(PASS_GAP)
        else:
            log.error("parked", schedule=str(parked), reason=reason)
