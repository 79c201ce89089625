"""Matching dates of an expression: months, days of the month and days of the week."""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Self

MAX_YEARS: Final = 50  # of one search, as in the search of croniter
_ANY: Final = "*"
_LAST: Final = "L"
_NEAREST_WEEKDAY: Final = "W"
_NTH: Final = "#"
_DAYS_PER_WEEK: Final = 7
_MONTHS_PER_YEAR: Final = 12
_ALL_MONTHS: Final = tuple(range(1, _MONTHS_PER_YEAR + 1))
_MAX_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # of each month
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DateRule:
    """The dates of the day, month and weekday fields. Weekdays count from Sunday, which is 0.

    croniter tries each month of fifty years for a rare date, which takes milliseconds.
    """

    months: tuple[int, ...]
    days: tuple[int, ...] = ()
    is_last_day: bool = False
    weekdays: frozenset[int] = frozenset()
    nth_weekdays: tuple[tuple[int, int], ...] = ()  # a weekday, and 1 for the first one in a month
    last_weekdays: tuple[int, ...] = ()
    needs_both: bool = False  # a plain weekday and a day of the month

    @classmethod
    def parse(cls, day: str, month: str, weekday: str, *, needs_both: bool = False) -> Self | None:
        """Return the rule of converted fields, or None if croniter must decide about the dates.

        Fields that match every date, and `15W`, have no rule.
        """
        if (day == month == weekday == _ANY) or _NEAREST_WEEKDAY in day:
            return None
        days = [] if day == _ANY else day.split(",")
        weekdays = [] if weekday == _ANY else weekday.split(",")
        if not days and not weekdays:
            days = [str(each) for each in range(1, max(_MAX_DAYS) + 1)]
        nth = [each.split(_NTH) for each in weekdays if _NTH in each]
        return cls(
            months=_ALL_MONTHS if month == _ANY else tuple(map(int, month.split(","))),
            days=tuple(int(each) for each in days if each != _LAST),
            is_last_day=_LAST in days,
            weekdays=frozenset(int(each) for each in weekdays if each.isdigit()),
            nth_weekdays=tuple((int(each), int(number)) for each, number in nth),
            last_weekdays=tuple(int(each[1:]) for each in weekdays if each.startswith(_LAST)),
            needs_both=needs_both and _ANY not in (day, weekday),
        )

    def first_from(self, start: date) -> date | None:
        """Return the first matching date from `start` on, or None without one in fifty years."""
        if not self._has_any_date:
            return None
        first_day = start.day
        for year in range(start.year, start.year + MAX_YEARS + 1):
            for month in self.months:
                if year == start.year and month < start.month:
                    continue
                day = self._first_day(year, month, first_day if _is_in(start, year, month) else 1)
                if day is not None:
                    return date(year, month, day)
        return None

    @property
    def _has_any_date(self) -> bool:
        """Return whether some month contains some day of the rule."""
        has_weekday = self.weekdays or self.nth_weekdays or self.last_weekdays
        if self.is_last_day or (has_weekday and not self.needs_both):
            return True
        return any(day <= _MAX_DAYS[month - 1] for month in self.months for day in self.days)

    def _first_day(self, year: int, month: int, first: int) -> int | None:
        days = (day for day in self._days_of(year, month, first) if day >= first)
        return min(days, default=None)

    def _days_of(self, year: int, month: int, first: int) -> Iterator[int]:
        """Yield the matching days of a month, and of plain weekdays the first ones from `first`."""
        monday, length = monthrange(year, month)
        sunday_first = (monday + 1) % _DAYS_PER_WEEK  # the weekday of the first day
        if self.needs_both:
            days = {*self.days, length} if self.is_last_day else self.days
            yield from (
                day
                for day in days
                if day <= length and (sunday_first + day - 1) % _DAYS_PER_WEEK in self.weekdays
            )
            return
        yield from (day for day in self.days if day <= length)
        if self.is_last_day:
            yield length
        for weekday in self.weekdays:
            offset = (weekday - sunday_first - first + 1) % _DAYS_PER_WEEK
            if first + offset <= length:
                yield first + offset
        for weekday, number in self.nth_weekdays:
            day = 1 + (weekday - sunday_first) % _DAYS_PER_WEEK + (number - 1) * _DAYS_PER_WEEK
            if day <= length:
                yield day
        for weekday in self.last_weekdays:
            yield length - (sunday_first + length - 1 - weekday) % _DAYS_PER_WEEK


def _is_in(day: date, year: int, month: int) -> bool:
    return (day.year, day.month) == (year, month)


def day_after(day: date) -> date:
    return day + _DAY
