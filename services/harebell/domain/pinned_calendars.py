"""The calendars of a schedule: the rule and the blackouts of its pinned calendars. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import time
from functools import lru_cache
from typing import Final

from harebell.contract.calendar import (
    WEEKDAYS,
    PinnedCalendar,
    parse_days,
)
from harebell.contract.errors import InvalidInput
from harebell.contract.schedule import SchedulingPolicy
from harebell.domain.calendars import Calendar, CalendarRule, DayRange, WeeklyWindow
from harebell.domain.cron.timezones import load_timezone

MAX_CACHED_CALENDARS: Final = 500  # calendars, which many schedules share


def calendar_rule(policy: SchedulingPolicy) -> CalendarRule | None:
    """Return the rule of the pinned calendars, or None if they decide no scheduled time."""
    names = policy.calendars
    if names is None or not names.decides_times:
        return None
    pinned = _pinned_by_name(policy)
    return CalendarRule(
        exclude=calendars_of(_named(pinned, names.exclude)),
        include=calendars_of(_named(pinned, names.include)),
        on_excluded=names.on_excluded,
        open_day=names.open_day,
    )


def blackouts_of(policy: SchedulingPolicy) -> tuple[Calendar, ...]:
    """Return the pinned calendars that hold back starts, in the order of the schedule."""
    names = policy.calendars
    if names is None or not names.blackout:
        return ()
    return calendars_of(_named(_pinned_by_name(policy), names.blackout))


def calendars_of(pinned: Iterable[PinnedCalendar]) -> tuple[Calendar, ...]:
    """Return the calendars of their contents, which a cache keeps."""
    return tuple(_calendar(each.model_dump_json()) for each in pinned)


def _pinned_by_name(policy: SchedulingPolicy) -> Mapping[str, PinnedCalendar]:
    return {each.name: each for each in policy.pinned_calendars}


def _named(pinned: Mapping[str, PinnedCalendar], names: Sequence[str]) -> list[PinnedCalendar]:
    missing = [name for name in names if name not in pinned]
    if missing:
        reason = f"The calendar {missing[0]} must be pinned, and the definition lacks its content."
        raise InvalidInput(reason, field="calendars", code="unknown_calendar")
    return [pinned[name] for name in names]


@lru_cache(MAX_CACHED_CALENDARS)
def _calendar(pinned_json: str) -> Calendar:
    pinned = PinnedCalendar.model_validate_json(pinned_json)
    return Calendar.create(
        pinned.name,
        load_timezone(pinned.timezone),
        days=[DayRange(*parse_days(each)) for each in pinned.days],
        windows=[
            WeeklyWindow(
                frozenset(WEEKDAYS.index(day) for day in each.weekdays),
                time.fromisoformat(each.from_),
                time.fromisoformat(each.to),
            )
            for each in pinned.weekly
        ],
    )
