"""The scheduled times of a rule within one year, computed from its JSON without the product.

The computation does not use `next_after`, the clock changes of the product or croniter.
It tries each local time with every UTC offset that the zone has within the year.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, Final
from zoneinfo import ZoneInfo

START: Final = datetime(2026, 9, 1, tzinfo=UTC)
END: Final = datetime(2027, 9, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MARGIN: Final = 3 * DAY  # before and after, because local days differ from UTC days
RESOLUTION: Final = timedelta(milliseconds=1)
UNITS: Final = {"ms": RESOLUTION, "s": timedelta(seconds=1), "m": MINUTE, "h": HOUR, "d": DAY}


def duration(text: str) -> timedelta:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * UNITS[unit]


@dataclass(frozen=True)
class ClockChange:
    """A change of the local time from `before` to `after`."""

    at: datetime
    before: datetime
    after: datetime


class Zone:
    """The local times of a time zone within the year."""

    def __init__(self, name: str) -> None:
        self._zone = ZoneInfo(name)
        hours = [START - MARGIN + n * HOUR for n in range((END - START + 2 * MARGIN) // HOUR)]
        self.clock_changes = [
            self._clock_change(first, second)
            for first, second in pairwise(hours)
            if self._offset(first) != self._offset(second)
        ]
        self._offsets = {self._offset(hour) for hour in hours}

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta(0)

    def _clock_change(self, hour: datetime, next_hour: datetime) -> ClockChange:
        before, after = self._offset(hour), self._offset(next_hour)
        while self._offset(hour) == before:
            hour += MINUTE
        naive = hour.replace(tzinfo=None)
        return ClockChange(hour, naive + before, naive + after)

    def local_time(self, at: datetime) -> datetime:
        return at.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def times_of(self, local: datetime) -> list[datetime]:
        """Return the zero, one or two times at which the clocks show the local time."""
        candidates = [local.replace(tzinfo=UTC) - offset for offset in self._offsets]
        return sorted(at for at in candidates if self.local_time(at) == local)

    def gap_with(self, local: datetime) -> datetime:
        """Return the time at which the clocks omit the local time."""
        changes = (each.at for each in self.clock_changes if each.before <= local < each.after)
        return next(changes)

    def midnight(self, day: date) -> datetime:
        """Return the first time of the day."""
        local = datetime.combine(day, time())
        return min(self.times_of(local), default=None) or self.gap_with(local)

    def next_at_clock(self, clock: str, after: datetime) -> datetime:
        """Return the first time later than `after` at which the clocks show the time of day."""
        days = [self.local_time(after).date() + n * DAY for n in range(3)]
        times = (self.times_of(datetime.combine(day, time.fromisoformat(clock))) for day in days)
        return min(at for each in times for at in each if at > after)


zone_of = lru_cache(maxsize=64)(Zone)


def numbers(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        base, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if base == "*" else base).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def day_matcher(field: str) -> Callable[[date], bool]:
    """Return the condition of a day of month. `L` is the last day."""
    if field == "L":
        return lambda day: (day + DAY).day == 1
    days = numbers(field, 1, 31)
    return lambda day: day.day in days


def weekday_matcher(field: str) -> Callable[[date], bool]:
    """Return the condition of a weekday. `5#2` is the second Friday, and `L5` is the last."""
    if field.startswith("L"):
        last = int(field[1:]), False
        return lambda day: (day.isoweekday() % 7, (day + 7 * DAY).month == day.month) == last

    if "#" in field:
        weekday, _, nth = (int(part) if part.isdigit() else 0 for part in field.partition("#"))
        return lambda day: day.isoweekday() % 7 == weekday and (day.day - 1) // 7 + 1 == nth
    days = numbers(field, 0, 6)
    return lambda day: day.isoweekday() % 7 in days


def matching_days(month: str, of_month: str, of_week: str) -> Iterator[date]:
    """Yield the days. One day field must match if both are restricted, otherwise both must."""
    months, first, second = numbers(month, 1, 12), day_matcher(of_month), weekday_matcher(of_week)
    is_either = "*" not in (of_month, of_week)
    for n in range((END - START + 2 * MARGIN) // DAY):
        day = (START - MARGIN).date() + n * DAY
        if day.month in months and (any if is_either else all)((first(day), second(day))):
            yield day


def cron_times(rule: dict[str, Any]) -> Iterator[datetime]:
    """Yield the times of a cron rule, with the clock changes as in cron(8).

    A rule with a fixed time runs once on each day of a clock change, also if the time is omitted.
    """
    fields = rule["cron"].split()
    second = fields.pop(0) if len(fields) == 6 else "0"
    minute, hour, of_month, month, of_week = fields
    is_fixed = not (minute.startswith("*") or hour.startswith("*"))
    gap = rule.get("dst_gap", "next" if is_fixed else "skip")
    overlap = rule.get("dst_overlap", "first" if is_fixed else "both")
    kept = {"first": slice(1), "second": slice(-1, None), "both": slice(None)}[overlap]
    zone = zone_of(rule.get("timezone", "UTC"))
    clocks = [
        time(*each)
        for each in product(numbers(hour, 0, 23), numbers(minute, 0, 59), numbers(second, 0, 59))
    ]
    for day, clock in product(matching_days(month, of_month, of_week), clocks):
        local = datetime.combine(day, clock)
        if times := zone.times_of(local):
            yield from times[kept]
        elif gap == "next":
            yield zone.gap_with(local)


def interval_times(rule: dict[str, Any], accepted_at: datetime) -> Iterator[datetime]:
    step = duration(rule["every"])
    anchor = bound(rule, "start") or accepted_at + step
    first = max(0, -((anchor - accepted_at) // step))
    last = (min(END, bound(rule, "end") or END) - anchor) // step
    return (anchor + k * step for k in range(first, last + 1))


def bound(rule: dict[str, Any], which: str) -> datetime | None:
    text = rule.get(which)
    if text is None or len(text) > len("2026-11-20"):
        return None if text is None else datetime.fromisoformat(text)
    day, zone = date.fromisoformat(text), zone_of(rule.get("timezone", "UTC"))
    is_start = which == "start"
    return zone.midnight(day) if is_start else zone.midnight(day + DAY) - RESOLUTION


def unbounded_times(rule: dict[str, Any], accepted_at: datetime) -> Iterator[datetime]:
    match rule:
        case {"now": True}:
            yield accepted_at
        case {"at": at}:
            yield datetime.fromisoformat(at)
        case {"after": after}:
            yield accepted_at + duration(after)
        case {"every": _}:
            yield from interval_times(rule, accepted_at)
        case {"cron": _}:
            yield from cron_times(rule)
        case _:
            for each in rule["any_of"]:
                yield from bounded_times(each, accepted_at)


def bounded_times(rule: dict[str, Any], accepted_at: datetime) -> Iterator[datetime]:
    start, end = bound(rule, "start"), bound(rule, "end")
    for at in unbounded_times(rule, accepted_at):
        if (start is None or at >= start) and (end is None or at <= end):
            yield at


def is_one_shot(when: dict[str, Any]) -> bool:
    return bool(when.keys() & {"now", "at", "after"})


def scheduled_times(when: dict[str, Any], accepted_at: datetime) -> list[datetime]:
    """Return the ordered times until the end of the year.

    Only the time of a one-shot rule may be before the acceptance.
    """
    times = {at for at in bounded_times(when, accepted_at) if at <= END}
    return sorted(at for at in times if is_one_shot(when) or at >= accepted_at)
