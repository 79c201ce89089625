"""Matching local times of an expression: the only module that uses croniter.

croniter handles naive local times only. Its own time zone code repeats runs, invents runs, and may
need minutes for one result.
"""

from copy import copy
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Final

from croniter import CroniterBadDateError, croniter

from harebell.domain.cron.calendar import DateRule, day_after

MAX_CACHED: Final = 4_096  # expressions
_ANY_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - without one croniter reads the clock
_SECOND: Final = timedelta(seconds=1)
_CANDIDATES: Final = 2  # dates of one search: the day of its start, and the next matching date


@dataclass(frozen=True, slots=True)
class CronMatcher:
    """The local times, without a time zone, that match `text` of a `ParsedCron`.

    With `needs_both_days`, a date must match both restricted day fields, and otherwise one of them.
    """

    text: str
    needs_both_days: bool = False

    def next_after(self, local: datetime) -> datetime | None:
        """Return the first match after `local`, or None without a match in fifty years."""
        dates, times = _parsed(self.text, needs_both_days=self.needs_both_days)
        if dates is None:
            return _next_time(times, local)
        day = dates.first_from(local.date())
        for _ in range(_CANDIDATES):
            if day is None:
                return None
            found = _next_time(times, max(local, datetime.combine(day, time()) - _SECOND))
            if found is not None and found.date() == day:
                return found
            day = dates.first_from(day_after(day))
        return None


def _next_time(times: croniter, local: datetime) -> datetime | None:
    # A copy, because a call changes the iterator and two threads may call.
    iterator = copy(times)
    try:
        found: datetime = iterator.get_next(datetime, start_time=local)
    except CroniterBadDateError:
        return None
    return found


@lru_cache(maxsize=MAX_CACHED)
def _parsed(text: str, *, needs_both_days: bool) -> tuple[DateRule | None, croniter]:
    """Return the dates of the expression, and its times on every day or, without dates, all."""
    minute, hour, day, month, weekday, *second = text.split()
    dates = DateRule.parse(day, month, weekday, needs_both=needs_both_days)
    days = [day, month, weekday] if dates is None else ["*"] * 3
    return dates, croniter(" ".join([minute, hour, *days, *second]), _ANY_TIME)
