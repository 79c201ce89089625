"""The window of the searches for open runs: which due times and partitions they visit.

PostgreSQL keeps the index entries of ended runs while any transaction may still see them, and a
search visits them. A held snapshot therefore makes a search of all due times slower and slower.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from harebell.contract.types import EARLIEST
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.runs import recovery
from harebell.storage.runs.partitions import partition_at
from harebell.ticker.read_pauses import pause_after_read

RECENT: Final = timedelta(seconds=30)  # the due times that every search visits
MIN_READ_INTERVAL: Final = 10.0  # seconds between two reads of all open runs
MAX_READ_INTERVAL: Final = 30.0
DAY: Final = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class SearchWindow:
    """The window of one ticker, with every run that was due and open at the last full read.

    It also contains the runs that were opened since. Those that were due more than `RECENT` before
    that read, or that belong to a day before yesterday, are missing until the next read.
    """

    pool: asyncpg.Pool
    clock: Clock
    _read_at: float = 0.0  # monotonic seconds of the next read
    _since: datetime = EARLIEST
    _partitions: frozenset[str] | None = None  # with open runs at the last read

    async def scope(self) -> recovery.SearchScope:
        """Return the present window, after a read of all open runs if it is time for one."""
        if monotonic() >= self._read_at:
            await self._read()
        if self._partitions is None:
            return recovery.ALL_OPEN_RUNS
        now = self.clock.now()
        near = {partition_at(time) for time in (now - DAY, now, now + DAY)}
        return recovery.SearchScope(self._since, self._partitions | near)

    async def _read(self) -> None:
        began, now = monotonic(), self.clock.now()
        self._read_at = began + MAX_READ_INTERVAL  # for the other search during this read
        try:
            found = await recovery.find_open_days(self.pool)
        finally:  # also after a timeout, which repeats otherwise
            ended = monotonic()
            self._read_at = ended + pause_after_read(
                ended - began, shortest=MIN_READ_INTERVAL, longest=MAX_READ_INTERVAL
            )
        self._since = min([now - RECENT, *(each.first_due_at for each in found)])
        self._partitions = frozenset(each.partition for each in found)
