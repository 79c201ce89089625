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

FULL_READ_INTERVAL: Final = 10.0  # seconds until a read finds what another ticker has written

NEXT_TIME: Final = "SELECT min(next_at) FROM schedule_state WHERE next_at > $1"


@dataclass(slots=True, kw_only=True)
class NextTimes:
    """The earliest next time that one ticker knows, and its low-water mark below all of them.

    A schedule that this ticker saves lowers both at once. The next times that another ticker writes
    below the mark are found within `FULL_READ_INTERVAL`.
    """

    known: datetime = LATEST  # the earliest next time
    lowered: asyncio.Event = field(default_factory=asyncio.Event)  # set when `known` is lowered
    _mark: datetime = EARLIEST
    _expires_at: float = 0.0  # monotonic seconds
    _saved: datetime = LATEST  # the earliest next time that was saved since the last read began

    @property
    def mark(self) -> datetime:
        """Return the mark, which an expiry resets to the earliest possible time."""
        if monotonic() >= self._expires_at:
            self._mark = EARLIEST
            self._expires_at = monotonic() + FULL_READ_INTERVAL
        return self._mark

    def observe(self, saved: Iterable[datetime | None]) -> None:
        """Lower the mark below the next times of saved schedules."""
        earliest = min(filter(None, saved), default=LATEST)
        self._saved = min(self._saved, earliest)
        self._mark = min(self._mark, earliest - RESOLUTION)
        if earliest < self.known:
            self.known = earliest
            self.lowered.set()

    async def read(self, pool: asyncpg.Pool) -> None:
        """Read the earliest next time, and raise the mark to it."""
        self._saved = LATEST
        with translate_db_errors():
            found: datetime | None = await pool.fetchval(NEXT_TIME, self.mark)
        # The read may have missed a schedule that was saved during it.
        self.known = min(found or LATEST, self._saved)
        if self.known < LATEST:
            self._mark = self.known - RESOLUTION
