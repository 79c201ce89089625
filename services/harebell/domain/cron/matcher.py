"""The only user of croniter, which is asked about naive local times and nothing else.

Its own handling of time zones runs things twice, invents runs and can take minutes for one answer.
"""

from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from croniter import CroniterBadDateError, croniter

PARSED_MEMO: Final = 4_096  # calendars
_ANY_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - without one croniter reads the clock


@dataclass(frozen=True, slots=True)
class CronMatcher:
    """Local times, without a zone: the ones that `text` (see dialect.Reading) matches."""

    text: str

    def next_after(self, wall: datetime) -> datetime | None:
        """Return the first match strictly after; None if the next fifty years have none."""
        # A copy, because asking moves the iterator and two threads may ask.
        iterator = copy(_parsed(self.text))
        try:
            found: datetime = iterator.get_next(datetime, start_time=wall)
        except CroniterBadDateError:
            return None
        return found


@lru_cache(maxsize=PARSED_MEMO)
def _parsed(text: str) -> croniter:
    return croniter(text, _ANY_TIME)
