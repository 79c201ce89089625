"""Blackouts: claimed runs that must not start before the end of a calendar.

The ticker sets a due time after the blackouts. A late run, a retry, a replay and a run of a trigger
may still reach its start within one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.ticket import Ticket
from harebell.domain.calendars import end_of_blackout
from harebell.domain.recurrence import calendars_of
from harebell.domain.run_states import Reason
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.ledger.delayed_runs import delay_and_publish
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.micro_batcher import MicroBatcher
from harebell.runtime.retries import backoff_delay

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Blackouts:
    """The check of the blackouts of each run before its start, for all lanes of an executor."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    claimed_runs: ClaimedRuns
    _held: MicroBatcher[tuple[ClaimedRun, datetime], None] = field(init=False)

    def __post_init__(self) -> None:
        self._held = MicroBatcher(self._hold_batch)

    async def run(self) -> None:
        """Hold back runs until the task is cancelled."""
        await self._held.run()

    async def allow(self, run: ClaimedRun) -> bool:
        """Return whether a claimed run may start now.

        Otherwise the run waits for the end of the blackout and is no longer claimed. While the
        database is unavailable, no run starts within a blackout. The wait ends with the lease.
        """
        tries = 0
        while (end := end_of_hold(run.ticket, self.clock.now())) is not None:
            if monotonic() >= run.lease_ends:
                log.warning("run not held back before lease end", run=str(run.key))
            else:
                try:
                    await self._held.submit((run, end))
                except Transient as error:
                    log.warning("run not held back", run=str(run.key), error=error.code)
                    await asyncio.sleep(backoff_delay(tries))
                    tries += 1
                    continue
            self.claimed_runs.remove([run])
            return False
        return True

    async def _hold_batch(self, held: Sequence[tuple[ClaimedRun, datetime]]) -> list[None]:
        """Delay the runs. A run with a stop request stays claimed until its lease expires."""
        delays = [(run.ticket, run.token, end) for run, end in held]
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            moved = await delay_and_publish(transaction, delays, Reason.BLACKOUT)
        metrics.HELD_RUNS.inc(len(moved))
        return [None] * len(held)


def end_of_hold(ticket: Ticket, now: datetime) -> datetime | None:
    """Return the end of the blackouts of a run, or None if the run may start now."""
    pinned = ticket.run_spec.blackouts
    if not pinned:
        return None
    end = end_of_blackout(calendars_of(pinned), now)
    return None if end <= now else end
