"""Matching local times of an expression: the only module that uses croniter.

croniter handles naive local times only. Its own time zone code repeats runs, invents runs, and may
need minutes for one result.
"""

from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from croniter import CroniterBadDateError, croniter

MAX_CACHED: Final = 4_096  # expressions
_ANY_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - without one croniter reads the clock


@dataclass(frozen=True, slots=True)
class CronMatcher:
    """The local times, without a time zone, that match `text` of a `ParsedCron`."""

    text: str

    def next_after(self, local: datetime) -> datetime | None:
        """Return the first match after `local`, or None without a match in fifty years."""
        # A copy, because a call changes the iterator and two threads may call.
        iterator = copy(_parsed(self.text))
        try:
            found: datetime = iterator.get_next(datetime, start_time=local)
        except CroniterBadDateError:
            return None
        return found


@lru_cache(maxsize=MAX_CACHED)
def _parsed(text: str) -> croniter:
    return croniter(text, _ANY_TIME)
