"""Times that calendars move to another day: the next one, and the origins of one. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from harebell.contract.policy import OnExcluded
from harebell.domain.calendars import (
    MAX_SHIFT_DAYS,
    CalendarRule,
    ExcludedTime,
    KeptTime,
    ShiftedTime,
    decide_time,
)

MAX_MOVE_STEPS: Final = 500  # times examined in one search
_RESOLUTION: Final = timedelta(milliseconds=1)
# A local day has at most this length, also on the night of a clock change.
_LONGEST_DAY: Final = timedelta(hours=26)
_MAX_DISTANCE: Final = MAX_SHIFT_DAYS * _LONGEST_DAY  # between a time and its replacement


class Times(Protocol):
    """The times of a rule before a calendar decides."""

    def next_after(self, after: datetime) -> datetime | None: ...


def next_time_with_moves(
    times: Times, rule: CalendarRule, after: datetime, *, zone: ZoneInfo
) -> datetime | None:
    """Return the first kept or moved time after `after`, or None.

    A search examines at most `MAX_MOVE_STEPS` times and then returns the first one that it found.
    """
    is_later = rule.on_excluded is OnExcluded.NEXT
    best: datetime | None = None
    last: datetime | None = None  # no time after it gives an earlier result than `best`
    cursor: datetime | None = _reach(rule, after, -_LONGEST_DAY) if is_later else after
    for _ in range(MAX_MOVE_STEPS):
        time = None if cursor is None else times.next_after(cursor)
        if time is None or (last is not None and time >= last):
            return best
        found = _result_of(rule, time, zone)
        if found is not None and found > after and (best is None or found < best):
            best = found
            last = found if is_later else _reach(rule, found, _LONGEST_DAY)
        cursor = _cursor_after(rule, time) if found is None else time
    return best


def times_moved_to(
    times: Times, rule: CalendarRule, at: datetime, *, zone: ZoneInfo
) -> Iterator[tuple[datetime, str]]:
    """Yield the excluded times that `at` replaces, each with the calendar that excludes it."""
    if rule.on_excluded is OnExcluded.SKIP:
        return
    is_later = rule.on_excluded is OnExcluded.NEXT
    cursor, last = (
        (_reach(rule, at, -_LONGEST_DAY), at) if is_later else (at, _reach(rule, at, _LONGEST_DAY))
    )
    for _ in range(MAX_MOVE_STEPS):
        time = times.next_after(cursor)
        if time is None or time > last:
            return
        decision = decide_time(rule, time, zone)
        if isinstance(decision, ShiftedTime) and decision.at == at:
            yield time, decision.calendar
        cursor = time


def _result_of(rule: CalendarRule, time: datetime, zone: ZoneInfo) -> datetime | None:
    match decide_time(rule, time, zone):
        case KeptTime(at) | ShiftedTime(at, _):
            return at
        case ExcludedTime():
            return None


def _cursor_after(rule: CalendarRule, time: datetime) -> datetime | None:
    """Return the cursor after a time without a replacement, or None if no replacement follows.

    The cursor passes the part of a long excluded period that has no open day near enough.
    """
    opening = rule.next_opening(time)
    if rule.on_excluded is OnExcluded.NEXT:
        return None if opening is None else max(time, opening - _MAX_DISTANCE - _RESOLUTION)
    earliest = time - _MAX_DISTANCE
    if rule.excluding(earliest) is None:
        return time
    end = rule.next_opening(earliest)
    if end is not None and end <= time:
        return time
    return None if opening is None else opening - _RESOLUTION


def _reach(rule: CalendarRule, at: datetime, step: timedelta) -> datetime:
    """Return an instant such that no time beyond it moves past `at`. `step` gives the direction.

    A time that moves stops at the first open day, so it does not pass a whole day that is open.
    """
    edge = at
    for _ in range(MAX_SHIFT_DAYS):
        begin, edge = edge, edge + step
        if rule.is_open_between(min(begin, edge), max(begin, edge)):
            return edge
    return edge
