"""The overdue schedules: their metric, and those that their ticker has left behind.

A low-water mark hides what another ticker saves below it. That ticker stages it, unless it dies.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.runtime.clock import monotonic
from harebell.storage.engine import translate_db_errors
from harebell.ticker import metrics
from harebell.ticker.next_times import NextTimes
from harebell.ticker.read_pauses import pause_after_read

READ_INTERVAL: Final = 8.0  # seconds
MAX_READ_INTERVAL: Final = 60.0  # seconds
MAX_COUNTED: Final = 20_000  # schedules in one read

# The order makes the database use the index: without statistics it would read every schedule.
OVERDUE_SCHEDULES: Final = """
SELECT count(*), min(next_at) FROM (
    SELECT next_at FROM schedule_state WHERE next_at < now() ORDER BY next_at LIMIT $1
) AS overdue
"""
log = structlog.get_logger()


async def read_overdue(pool: asyncpg.Pool) -> asyncpg.Record:
    """Return `count` of the schedules whose next time has passed, and `min` of their next times."""
    return await pool.fetchrow(OVERDUE_SCHEDULES, MAX_COUNTED)


@dataclass(slots=True)
class OverdueSearch:
    """The search of one ticker for all overdue schedules, which lowers its mark to them."""

    pool: asyncpg.Pool
    next_times: NextTimes

    async def run(self) -> None:
        """Repeat the search until the task is cancelled."""
        while True:
            began = monotonic()
            try:
                await self.search()
            except Transient as error:
                log.warning("overdue schedules not read", error=error.code, reason=error.reason)
            duration = monotonic() - began
            await asyncio.sleep(
                pause_after_read(duration, shortest=READ_INTERVAL, longest=MAX_READ_INTERVAL)
            )

    async def search(self) -> None:
        """Set the metric and lower the mark. Raise `DatabaseUnavailable`."""
        with translate_db_errors():
            found = await read_overdue(self.pool)
        metrics.OVERDUE_SCHEDULES.set(found["count"])
        self.next_times.observe([found["min"]])
