"""The next times of schedules: reads of the earliest one, above a low-water mark.

A replanned schedule leaves a dead entry in the index of next times, and PostgreSQL keeps it while
any transaction may still see it. A read from the low-water mark on visits none of the entries
below it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.types import EARLIEST, LATEST
from harebell.domain.recurrence import RESOLUTION
from harebell.runtime.clock import monotonic
from harebell.storage.engine import translate_db_errors

FULL_READ_INTERVAL: Final = 30.0  # seconds until a read finds what another ticker has written

NEXT_TIME: Final = "SELECT min(next_at) FROM schedule_state WHERE next_at > $1"


@dataclass(slots=True)
class NextTimes:
    """The low-water mark of one ticker: every known next time is after it.

    A schedule that this ticker saves lowers the mark at once. The next times that another ticker
    writes below the mark are found within `FULL_READ_INTERVAL`.
    """

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

    def reset(self) -> None:
        """Let the next read find every next time, also one that no ticker has saved."""
        self._expires_at = 0.0

    def observe(self, saved: Iterable[datetime | None]) -> None:
        """Lower the mark below the next times of saved schedules."""
        earliest = min(filter(None, saved), default=LATEST)
        self._saved = min(self._saved, earliest)
        self._mark = min(self._mark, earliest - RESOLUTION)

    async def earliest(self, pool: asyncpg.Pool) -> datetime | None:
        """Return the earliest next time, or None, and raise the mark to it."""
        self._saved = LATEST
        with translate_db_errors():
            found: datetime | None = await pool.fetchval(NEXT_TIME, self.mark)
        if found is not None:
            # The read may have missed a schedule that was saved during it.
            self._mark = min(found, self._saved) - RESOLUTION
        return found
