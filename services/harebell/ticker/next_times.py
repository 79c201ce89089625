"""The next times of schedules: reads of the earliest one, above a low-water mark.

A replanned schedule leaves a dead entry in the index of next times, and PostgreSQL keeps it while
any transaction may still see it. A read from the low-water mark on visits none of the entries
below it.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.types import EARLIEST, LATEST
from harebell.domain.recurrence import RESOLUTION
from harebell.runtime.clock import monotonic
from harebell.storage.engine import translate_db_errors

# Seconds until a read finds the future next times that another ticker has saved.
FUTURE_READ_INTERVAL: Final = 10.0

NEXT_TIME: Final = "SELECT min(next_at) FROM schedule_state WHERE next_at > $1"


@dataclass(slots=True, kw_only=True)
class NextTimes:
    """The earliest next time that one ticker knows, and its low-water mark below all of them.

    A schedule that this ticker saves lowers both at once. What another ticker saves between
    now and the mark is found within `FUTURE_READ_INTERVAL`. `OverdueSearch` finds what is overdue.
    """

    known: datetime = LATEST  # the earliest next time
    lowered: asyncio.Event = field(default_factory=asyncio.Event)  # set when `known` is lowered
    mark: datetime = EARLIEST
    _future_read_at: float = 0.0  # monotonic seconds
    _saved: datetime = LATEST  # the earliest next time that was saved since the last read began

    def observe(self, saved: Iterable[datetime | None]) -> None:
        """Lower the mark below the next times of saved schedules."""
        earliest = min(filter(None, saved), default=LATEST)
        self._saved = min(self._saved, earliest)
        self.mark = min(self.mark, earliest - RESOLUTION)
        if earliest < self.known:
            self.known = earliest
            self.lowered.set()

    async def read(self, pool: asyncpg.Pool, now: datetime) -> None:
        """Read the earliest next time, and raise the mark to it. Raise `DatabaseUnavailable`."""
        began, self._saved, after = monotonic(), LATEST, self.mark
        if reads_future := began >= self._future_read_at:
            after = min(self.mark, now)
        with translate_db_errors():
            found: datetime | None = await pool.fetchval(NEXT_TIME, after)
        if reads_future:
            self._future_read_at = began + FUTURE_READ_INTERVAL
        # The read may have missed a schedule that was saved during it.
        self.known = min(found or LATEST, self._saved)
        if self.known < LATEST:
            self.mark = self.known - RESOLUTION
