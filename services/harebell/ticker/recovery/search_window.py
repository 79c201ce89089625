"""The window of a search for open runs: all due times, or recent ones while searches are slow.

PostgreSQL keeps the index entries of ended runs while any transaction may still see them, and a
search visits them. A held snapshot therefore makes each search of all due times slower.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.types import EARLIEST
from harebell.runtime.clock import monotonic

RECENT: Final = timedelta(seconds=60)  # the due times of a search between two full searches
MAX_SHARE: Final = 0.05  # of the time that full searches may take
MAX_FULL_INTERVAL: Final = 30.0  # seconds between two full searches


@dataclass(slots=True)
class SearchWindow:
    """The window of one repeated search. A fast search always has all due times."""

    _full_at: float = 0.0  # monotonic seconds

    @contextmanager
    def search(self, now: datetime) -> Iterator[datetime]:
        """Yield the earliest due time of this search, and measure a full search.

        A run that was due before `RECENT` is found at most `MAX_FULL_INTERVAL` later than usual.
        """
        began = monotonic()
        if began < self._full_at:
            yield now - RECENT
            return
        try:
            yield EARLIEST
        finally:  # also after a timeout, which repeats otherwise
            took = monotonic() - began
            self._full_at = monotonic() + min(took / MAX_SHARE, MAX_FULL_INTERVAL)
