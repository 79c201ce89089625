"""The source of the days of a calendar: one of the options, and the years that it covers."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Final
from zoneinfo import ZoneInfo

from harebell.contract.calendar import MAX_CALENDAR_DAYS, CalendarContent, WeeklyHours
from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.domain.calendars import Calendar, DayRange

MAX_YEARS: Final = 20  # of one calendar
DEFAULT_YEARS: Final = 3  # from the current year on
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2100
EXTRA_MISSING: Final = "The source needs more packages: pip install 'harebell[calendars]'."
_YEARS: Final = re.compile(r"(\d{4})(?:-(\d{4}))?")
_UTC: Final = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDays:
    """The days of a source, its weekly whole days, and the events that are no days."""

    days: frozenset[date]
    weekly: tuple[WeeklyHours, ...] = ()
    omitted: int = 0  # events with times of day


@contextmanager
def needing_extra() -> Iterator[None]:
    """Raise `InvalidInput` if a package of the extra `harebell[calendars]` is missing."""
    try:
        yield
    except ModuleNotFoundError:
        raise InvalidInput(EXTRA_MISSING, code="missing_package") from None


def parse_years(text: str | None, *, current: int) -> range:
    """Return the years of a year or a range of years. Raise `InvalidInput`."""
    if text is None:
        return range(current, current + DEFAULT_YEARS)
    found = _YEARS.fullmatch(text)
    first, last = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
    if not FIRST_YEAR <= first <= last <= LAST_YEAR or last - first >= MAX_YEARS:
        reason = (
            f"The years must be a year or at most {MAX_YEARS} years such as 2027-2029, from "
            f"{FIRST_YEAR} to {LAST_YEAR}, not {quoted(text)}."
        )
        raise InvalidInput(reason, field="years", code="invalid_years")
    return range(first, last + 1)


def content_of(found: FoundDays, *, timezone: str) -> CalendarContent:
    """Return the calendar of the days, as ranges. Raise `InvalidInput` for too few or too many."""
    if not found.days:
        reason = "The source must contain at least one whole day in these years, but has none."
        raise InvalidInput(reason, field="years", code="empty_calendar")
    ranges = list(ranges_of(found.days))
    if len(ranges) > MAX_CALENDAR_DAYS:
        reason = (
            f"The days must be at most {MAX_CALENDAR_DAYS} ranges, not {len(ranges)}. "
            "Store fewer years."
        )
        raise InvalidInput(reason, field="years", code="too_many")
    return CalendarContent(timezone=timezone, days=ranges, weekly=list(found.weekly))


def ranges_of(days: Iterable[date]) -> Iterator[str]:
    """Yield the days in order, and adjacent days as one range."""
    calendar = Calendar.create("days", _UTC, days=[DayRange(day, day) for day in days])
    for each in calendar.ranges:
        yield str(each.first) if each.first == each.last else f"{each.first}/{each.last}"


def summary(found: FoundDays, years: range) -> str:
    """Return the sentence about the stored days, the years and the omitted events."""
    count = "1 day" if len(found.days) == 1 else f"{len(found.days)} days"
    span = f"{years[0]}" if len(years) == 1 else f"{years[0]} to {years[-1]}"
    weekly = " and each weekend" if found.weekly else ""
    text = f"The calendar contains {count} from {span}{weekly}."
    if not found.omitted:
        return text
    events = "1 event" if found.omitted == 1 else f"{found.omitted} events"
    return f"{text} It omits {events} with a time of day."
