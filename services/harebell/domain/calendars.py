"""Calendars: named sets of local days and weekly windows, and their decisions. Pure.

A schedule excludes calendars, or includes them and excludes every other time. Each decision names
the calendar that made it.
"""

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from operator import attrgetter, itemgetter
from typing import Final, Self, TypeAlias, TypeVar, assert_never
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
_NO_TIME: Final = timedelta(0)

# The local times of one day from the first up to, without, the second, both since midnight.
Hours: TypeAlias = tuple[timedelta, timedelta]
Bound = TypeVar("Bound", date, timedelta)
_WHOLE_DAY: Final[tuple[Hours, ...]] = ((_NO_TIME, _DAY),)
_start_of = itemgetter(0)
_first_of = attrgetter("first")


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

    def hours(self) -> Iterator[tuple[int, Hours]]:
        """Yield the hours of each weekday, with midnight as their last end or first start."""
        start, end = _since_midnight(self.start), _since_midnight(self.end)
        for weekday in self.weekdays:
            if start < end:
                yield weekday, (start, end)
                continue
            yield weekday, (start, _DAY)
            if end > _NO_TIME:
                yield (weekday + 1) % _DAYS_PER_WEEK, (_NO_TIME, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A named set of local times in one time zone.

    The ranges, and the hours of each weekday, are sorted and have gaps.
    """

    name: str
    zone: ZoneInfo
    ranges: tuple[DayRange, ...]
    weekly: tuple[tuple[Hours, ...], ...]

    @classmethod
    def create(
        cls,
        name: str,
        zone: ZoneInfo,
        *,
        days: Iterable[DayRange] = (),
        windows: Iterable[WeeklyWindow] = (),
    ) -> Self:
        """Return the calendar of ranges and windows in any order, which may overlap."""
        weekly: list[list[Hours]] = [[] for _ in range(_DAYS_PER_WEEK)]
        for window in windows:
            for weekday, hours in window.hours():
                weekly[weekday].append(hours)
        ranges = _merged(((each.first, each.last) for each in days), gap=_DAY)
        return cls(
            name=name,
            zone=zone,
            ranges=tuple(DayRange(first, last) for first, last in ranges),
            weekly=tuple(tuple(_merged(each, gap=_NO_TIME)) for each in weekly),
        )

    def includes(self, at: datetime) -> bool:
        """Return whether the calendar includes an instant."""
        local = at.astimezone(self.zone).replace(tzinfo=None)
        if self.range_of(local.date()) is not None:
            return True
        hours = self._hours_of(local)
        if not hours:
            return False
        clock = _since_midnight(local.time())
        index = bisect_right(hours, clock, key=_start_of)
        return index > 0 and clock < hours[index - 1][1]

    def covers(self, day: date) -> bool:
        """Return whether the calendar includes the whole day."""
        return self.range_of(day) is not None or self._hours_of(day) == _WHOLE_DAY

    def touches(self, day: date) -> bool:
        """Return whether the calendar includes a part of the day."""
        return self.range_of(day) is not None or bool(self._hours_of(day))

    def range_of(self, day: date) -> DayRange | None:
        """Return the range that contains the day, or None."""
        index = bisect_right(self.ranges, day, key=_first_of)
        found = self.ranges[index - 1] if index else None
        return found if found is not None and day <= found.last else None

    def next_beginning(self, at: datetime) -> datetime | None:
        """Return an instant after `at` before which the calendar does not begin, or None.

        None means that a calendar, which does not include `at`, never begins again.
        """
        today = at.astimezone(self.zone).date()
        if self._hours_of(today):
            return self.next_boundary(at)
        days = [today + n * _DAY for n in range(1, _DAYS_PER_WEEK + 1)]
        found = next((each for each in days if self._hours_of(each)), None)
        index = bisect_right(self.ranges, today, key=_first_of)
        if index < len(self.ranges):
            first = self.ranges[index].first
            found = first if found is None else min(found, first)
        if found is None:
            return None
        midnight = datetime.combine(found, _MIDNIGHT)
        return to_utc(midnight, offset_of(midnight, self.zone, fold=0))

    def next_boundary(self, at: datetime) -> datetime:
        """Return the first instant after `at` at which the calendar may begin or end."""
        local = at.astimezone(self.zone).replace(tzinfo=None, fold=0)
        found = self.range_of(local.date())
        last = local.date() if found is None else found.last
        midnight = datetime.combine(last, _MIDNIGHT)
        edges = [_DAY]
        if found is None:
            edges += [edge for hours in self._hours_of(local) for edge in hours]
            offset = offset_of(midnight, self.zone, fold=0)
            if offset == offset_of(midnight + _DAY, self.zone, fold=1):
                edge = min(each for each in edges if midnight + each > local)
                return to_utc(midnight + edge, offset)
        # A repeated local time is two instants, and a skipped one is the instant after the gap.
        locals_ = [midnight + each for each in edges]
        instants = [
            to_utc(local, offset_of(local, self.zone, fold=fold))
            for local in locals_
            for fold in (0, 1)
        ]
        instants += [instant_of(local, self.zone) for local in locals_]
        return min(each for each in instants if each > at)

    def _hours_of(self, day: date) -> tuple[Hours, ...]:
        return self.weekly[day.weekday()]


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

    def open_from(self, at: datetime) -> datetime | None:
        """Return the first open instant from `at` on.

        Return None if every later time, or each of `MAX_BOUNDARIES` periods, is excluded.
        """
        found: datetime | None = at
        for _ in range(MAX_BOUNDARIES):
            if found is None or self.excluding(found) is None:
                return found
            found = self.next_opening(found)
        return None

    def is_open_between(self, start: datetime, end: datetime) -> bool:
        """Return whether every instant from `start` to `end` is certainly open."""
        if self.excluding(start) is not None:
            return False
        beginnings = [each.next_beginning(start) for each in self.exclude]
        if any(each is not None and each <= end for each in beginnings):
            return False
        return not self.include or any(
            each.includes(start) and each.next_boundary(start) > end for each in self.include
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


def decide_time(
    rule: CalendarRule,
    at: datetime,
    zone: ZoneInfo,
    *,
    examined: dict[datetime, datetime | None] | None = None,
) -> CalendarDecision:
    """Return the decision about a scheduled time of a schedule in the time zone `zone`.

    A replacement has the same local time on the nearest day at which that time is open, at most
    `MAX_SHIFT_DAYS` away. A replacement in a gap is the instant after the gap.
    The calls of one search share `examined`: the open instant of each local time, or None.
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
    examined = {} if examined is None else examined
    for _ in range(MAX_SHIFT_DAYS):
        local += step
        if local not in examined:
            candidate = instant_of(local, zone)
            examined[local] = candidate if rule.excluding(candidate) is None else None
        found = examined[local]
        if found is not None:
            return ShiftedTime(found, calendar.name)
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
            return instant_of(datetime.combine(day, _MIDNIGHT), zone)
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


def _merged(
    intervals: Iterable[tuple[Bound, Bound]], *, gap: timedelta
) -> Iterator[tuple[Bound, Bound]]:
    """Yield sorted intervals. An interval continues another one that ends at most `gap` before."""
    current: tuple[Bound, Bound] | None = None
    for start, end in sorted(intervals):
        if current is None:
            current = start, end
        elif start <= current[1] + gap:
            current = current[0], max(current[1], end)
        else:
            yield current
            current = start, end
    if current is not None:
        yield current


def _since_midnight(clock: time) -> timedelta:
    return timedelta(
        hours=clock.hour,
        minutes=clock.minute,
        seconds=clock.second,
        microseconds=clock.microsecond,
    )


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant of a local time, or the instant after the gap that skips it."""
    change = clock_change_at(local, zone)
    if change is not None and change.is_gap:
        return change.at
    return to_utc(local, offset_of(local, zone, fold=0))
