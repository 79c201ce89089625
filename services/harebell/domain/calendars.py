"""Calendars: named sets of local days and weekly windows, and their decisions. Pure.

A schedule excludes calendars, or includes them and excludes every other time. Each decision names
the calendar that made it.
"""

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final, Self, TypeAlias, assert_never
from zoneinfo import ZoneInfo

from harebell.contract.policy import OnExcluded
from harebell.domain.cron.timezones import clock_change_at, offset_of, to_utc

MAX_SHIFT_DAYS: Final = 60  # between an excluded time and the open day that replaces it
MAX_BOUNDARIES: Final = 1_000  # examined in one search for the end of blackout windows
MAX_MONTHS: Final = 240  # examined in one search for an open day
_LONGEST_MONTH: Final = timedelta(days=31)
_MIDNIGHT: Final = time()
_DAY: Final = timedelta(days=1)
_DAYS_PER_WEEK: Final = 7


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days from `first` to `last`, both inclusive."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"The last day must not be before {self.first}, but is {self.last}.")


@dataclass(frozen=True, slots=True)
class WeeklyWindow:
    """The local times from `start` up to, without, `end`, on some weekdays. 0 is Monday.

    An `end` that is not later than `start` is on the next day.
    """

    weekdays: frozenset[int]
    start: time = _MIDNIGHT
    end: time = _MIDNIGHT

    def includes(self, local: datetime) -> bool:
        clock = local.time()
        is_today = local.weekday() in self.weekdays
        if self.start < self.end:
            return is_today and self.start <= clock < self.end
        return (is_today and clock >= self.start) or (
            self._begins_before(local.date()) and clock < self.end
        )

    def covers(self, day: date) -> bool:
        """Return whether the window includes the whole day."""
        return self.start == self.end == _MIDNIGHT and day.weekday() in self.weekdays

    def touches(self, day: date) -> bool:
        """Return whether the window includes a part of the day."""
        is_over_midnight = _MIDNIGHT < self.end <= self.start
        return day.weekday() in self.weekdays or (is_over_midnight and self._begins_before(day))

    def _begins_before(self, day: date) -> bool:
        return (day.weekday() - 1) % _DAYS_PER_WEEK in self.weekdays


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A named set of local times in one time zone. The ranges are sorted and have gaps."""

    name: str
    zone: ZoneInfo
    ranges: tuple[DayRange, ...] = ()
    windows: tuple[WeeklyWindow, ...] = ()

    @classmethod
    def create(
        cls,
        name: str,
        zone: ZoneInfo,
        *,
        days: Iterable[DayRange] = (),
        windows: Iterable[WeeklyWindow] = (),
    ) -> Self:
        """Return the calendar of ranges in any order, which may overlap."""
        return cls(name=name, zone=zone, ranges=tuple(_merged(days)), windows=tuple(windows))

    def includes(self, at: datetime) -> bool:
        """Return whether the calendar includes an instant."""
        local = at.astimezone(self.zone).replace(tzinfo=None)
        if self.range_of(local.date()) is not None:
            return True
        return any(window.includes(local) for window in self.windows)

    def covers(self, day: date) -> bool:
        """Return whether the ranges or one window include the whole day."""
        return self.range_of(day) is not None or any(each.covers(day) for each in self.windows)

    def touches(self, day: date) -> bool:
        """Return whether the calendar includes a part of the day."""
        return self.range_of(day) is not None or any(each.touches(day) for each in self.windows)

    def local_days(self, start: datetime, end: datetime) -> Iterator[date]:
        """Yield the days from `start` to `end`, both inclusive, in the time zone."""
        day, last = start.astimezone(self.zone).date(), end.astimezone(self.zone).date()
        while day <= last:
            yield day
            day += _DAY

    def range_of(self, day: date) -> DayRange | None:
        """Return the range that contains the day, or None."""
        index = bisect_right(self.ranges, day, key=lambda each: each.first)
        found = self.ranges[index - 1] if index else None
        return found if found is not None and day <= found.last else None

    def next_beginning(self, at: datetime) -> datetime | None:
        """Return an instant after `at` before which the calendar does not begin, or None.

        None means that a calendar, which does not include `at`, never begins again.
        """
        if self.windows:
            return self.next_boundary(at)
        local_day = at.astimezone(self.zone).date()
        index = bisect_right(self.ranges, local_day, key=lambda each: each.first)
        if index == len(self.ranges):
            return None
        midnight = datetime.combine(self.ranges[index].first, _MIDNIGHT)
        return to_utc(midnight, offset_of(midnight, self.zone, fold=0))

    def next_boundary(self, at: datetime) -> datetime:
        """Return the first instant after `at` at which the calendar may begin or end."""
        local_day = at.astimezone(self.zone).date()
        found = self.range_of(local_day)
        last = local_day if found is None else found.last
        locals_ = [datetime.combine(last + _DAY, _MIDNIGHT)]
        if found is None:
            clocks = {clock for each in self.windows for clock in (each.start, each.end)}
            locals_ += [datetime.combine(local_day, clock) for clock in clocks]
        # A repeated local time is two instants, and a skipped one is the instant after the gap.
        instants = [
            to_utc(local, offset_of(local, self.zone, fold=fold))
            for local in locals_
            for fold in (0, 1)
        ]
        instants += [_instant(local, self.zone) for local in locals_]
        return min(each for each in instants if each > at)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRule:
    """The calendars of a schedule. Without `include`, every time is included."""

    exclude: tuple[Calendar, ...] = ()
    include: tuple[Calendar, ...] = ()
    on_excluded: OnExcluded = OnExcluded.SKIP
    open_day: int | None = None  # of each month; -1 is the last one

    @property
    def names(self) -> list[str]:
        """Return the names of the calendars, each once."""
        return list(dict.fromkeys(each.name for each in (*self.exclude, *self.include)))

    def excluding(self, at: datetime) -> Calendar | None:
        """Return the calendar that excludes an instant, or None for an open instant."""
        for each in self.exclude:
            if each.includes(at):
                return each
        if self.include and not any(each.includes(at) for each in self.include):
            return self.include[0]
        return None

    def next_opening(self, at: datetime) -> datetime | None:
        """Return an instant after the excluded time `at` up to which every time is excluded.

        Return None if every later time is excluded.
        """
        for each in self.exclude:
            if each.includes(at):
                return each.next_boundary(at)
        beginnings = [each.next_beginning(at) for each in self.include]
        return min((each for each in beginnings if each is not None), default=None)

    def is_open_between(self, start: datetime, end: datetime) -> bool:
        """Return whether every local day from `start` to `end` is certainly open as a whole."""
        if any(each.touches(day) for each in self.exclude for day in each.local_days(start, end)):
            return False
        return not self.include or any(
            all(each.covers(day) for day in each.local_days(start, end)) for each in self.include
        )

    def is_open_day(self, day: date) -> bool:
        """Return whether no calendar excludes the whole day and `include` contains a part of it."""
        if any(each.covers(day) for each in self.exclude):
            return False
        return not self.include or any(each.touches(day) for each in self.include)


@dataclass(frozen=True, slots=True)
class KeptTime:
    """A scheduled time that no calendar excludes."""

    at: datetime


@dataclass(frozen=True, slots=True)
class ShiftedTime:
    """An excluded time with the open time that replaces it."""

    at: datetime
    calendar: str


@dataclass(frozen=True, slots=True)
class ExcludedTime:
    """An excluded time without a replacement."""

    calendar: str


CalendarDecision: TypeAlias = KeptTime | ShiftedTime | ExcludedTime


def decide_time(rule: CalendarRule, at: datetime, zone: ZoneInfo) -> CalendarDecision:
    """Return the decision about a scheduled time of a schedule in the time zone `zone`.

    A replacement has the same local time on the nearest day at which that time is open, at most
    `MAX_SHIFT_DAYS` away. A replacement in a gap is the instant after the gap.
    """
    calendar = rule.excluding(at)
    if calendar is None:
        return KeptTime(at)
    match rule.on_excluded:
        case OnExcluded.SKIP:
            return ExcludedTime(calendar.name)
        case OnExcluded.NEXT:
            step = _DAY
        case OnExcluded.PREVIOUS:
            step = -_DAY
        case _:
            assert_never(rule.on_excluded)
    local = at.astimezone(zone).replace(tzinfo=None, fold=0)
    for days in range(1, MAX_SHIFT_DAYS + 1):
        candidate = _instant(local + days * step, zone)
        if rule.excluding(candidate) is None:
            return ShiftedTime(candidate, calendar.name)
    return ExcludedTime(calendar.name)


def nth_open_day(rule: CalendarRule, month: date, number: int) -> date | None:
    """Return the n-th open day of the month that contains `month`, or None.

    Negative numbers count from the end: -1 is the last open day. Raise `ValueError` for 0.
    """
    if number == 0:
        raise ValueError("The number of an open day must not be 0.")
    length = monthrange(month.year, month.month)[1]
    days = [month.replace(day=each) for each in range(1, length + 1)]
    found = [each for each in days if rule.is_open_day(each)]
    index = number - 1 if number > 0 else len(found) + number
    return found[index] if 0 <= index < len(found) else None


def is_on_open_day(rule: CalendarRule, at: datetime, zone: ZoneInfo) -> bool:
    """Return whether an instant is on the open day of its month that the rule wants, if any."""
    day = at.astimezone(zone).date()
    return rule.open_day is None or nth_open_day(rule, day, rule.open_day) == day


def next_open_day(rule: CalendarRule, at: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the start of the first wanted open day after the day of `at`.

    Return None if `MAX_MONTHS` months have no such day.
    """
    if rule.open_day is None:
        raise ValueError("The rule must want an open day.")
    today = at.astimezone(zone).date()
    month = today.replace(day=1)
    for _ in range(MAX_MONTHS):
        day = nth_open_day(rule, month, rule.open_day)
        if day is not None and day > today:
            return _instant(datetime.combine(day, _MIDNIGHT), zone)
        month = (month + _LONGEST_MONTH).replace(day=1)
    return None


def blackout_at(blackouts: Sequence[Calendar], at: datetime) -> Calendar | None:
    """Return the first calendar that includes an instant, or None."""
    return next((each for each in blackouts if each.includes(at)), None)


def end_of_blackout(blackouts: Sequence[Calendar], at: datetime) -> datetime:
    """Return the first instant from `at` on that no calendar includes.

    Of a blackout that `MAX_BOUNDARIES` boundaries do not end, return the last of these boundaries.
    """
    for _ in range(MAX_BOUNDARIES):
        holding = blackout_at(blackouts, at)
        if holding is None:
            return at
        at = holding.next_boundary(at)
    return at


def _merged(days: Iterable[DayRange]) -> Iterator[DayRange]:
    """Yield sorted ranges with at least one day between two of them."""
    current: DayRange | None = None
    for each in sorted(days, key=lambda each: each.first):
        if current is None:
            current = each
        elif each.first <= current.last + _DAY:
            current = DayRange(current.first, max(current.last, each.last))
        else:
            yield current
            current = each
    if current is not None:
        yield current


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    change = clock_change_at(local, zone)
    if change is not None and change.is_gap:
        return change.at
    return to_utc(local, offset_of(local, zone, fold=0))
