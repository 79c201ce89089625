"""The days of an iCalendar file: its events of whole days, with their repetitions.

The packages `icalendar` and `recurring_ical_events` of the extra `harebell[calendars]` load on
demand.
"""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from harebell.cli.calendar.source import FoundDays, needing_extra
from harebell.contract.errors import InvalidInput

if TYPE_CHECKING:
    from icalendar import Component

MAX_ICAL_SIZE: Final = 4 * 1024 * 1024  # bytes
_DAY: Final = timedelta(days=1)
_CANCELLED: Final = "CANCELLED"


def ical_days(body: bytes, years: range) -> FoundDays:
    """Return the days of the events in these years. Raise `InvalidInput` for another file.

    Events with a time of day are omitted and counted, because a calendar contains whole days.
    Cancelled events have no day.
    """
    with needing_extra():
        import recurring_ical_events  # noqa: PLC0415  # in an extra, and slow
        from icalendar import Calendar  # noqa: PLC0415  # as above
    try:
        source = Calendar.from_ical(body)
        events = source.walk("VEVENT")
        omitted = [each for each in events if not _is_whole_day(each)]
        # Without these events, no repetition each second delays the command.
        source.subcomponents = [each for each in source.subcomponents if each not in omitted]
        first, last = date(years[0], 1, 1), date(years[-1] + 1, 1, 1)
        found = recurring_ical_events.of(source).between(first, last)
        days = {day for each in found for day in _days_of(each) if day.year in years}
    except ValueError as error:
        raise InvalidInput(
            f"The file must be an iCalendar file: {error}.", code="not_ical"
        ) from None
    return FoundDays(days=frozenset(days), omitted=len(omitted))


def _is_whole_day(event: "Component") -> bool:
    start = _value(event, "DTSTART")
    return isinstance(start, date) and not isinstance(start, datetime)


def _days_of(event: "Component") -> Iterator[date]:
    """Yield the days of one repetition. The end of an event is exclusive."""
    if str(event.get("STATUS", "")).upper() == _CANCELLED:
        return
    start, end = _day_of(event, "DTSTART"), _day_of(event, "DTEND")
    if start is None:
        return
    for index in range(1 if end is None else max(1, (end - start).days)):
        yield start + index * _DAY


def _day_of(event: "Component", name: str) -> date | None:
    value = _value(event, name)
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else None


def _value(event: "Component", name: str) -> object:
    """Return the value of a property. A property that is absent or invalid has none."""
    return getattr(event.get(name), "dt", None)
