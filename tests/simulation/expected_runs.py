"""When a schedule is due, reckoned anew from its JSON: every instant of a stretch, as a list.

It knows nothing of `next_after`, seams or croniter: local times are tried one by one against every
offset that their zone has in the stretch.
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
MARGIN: Final = 3 * DAY  # on both sides: local days begin before and end after
TICK: Final = timedelta(milliseconds=1)
UNITS: Final = {"ms": TICK, "s": timedelta(seconds=1), "m": MINUTE, "h": HOUR, "d": DAY}


def duration(text: str) -> timedelta:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * UNITS[unit]


@dataclass(frozen=True)
class Leap:
    """At `at`, the local time goes from `left` to `reached`."""

    at: datetime
    left: datetime
    reached: datetime


class Zone:
    """A zone in this stretch of time."""

    def __init__(self, name: str) -> None:
        self._zone = ZoneInfo(name)
        hours = [START - MARGIN + n * HOUR for n in range((END - START + 2 * MARGIN) // HOUR)]
        self.leaps = [
            self._leap(first, second)
            for first, second in pairwise(hours)
            if self._offset(first) != self._offset(second)
        ]
        self._offsets = {self._offset(hour) for hour in hours}

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta(0)

    def _leap(self, hour: datetime, following: datetime) -> Leap:
        before, after = self._offset(hour), self._offset(following)
        while self._offset(hour) == before:
            hour += MINUTE
        naive = hour.replace(tzinfo=None)
        return Leap(hour, naive + before, naive + after)

    def wall(self, at: datetime) -> datetime:
        return at.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def instants(self, wall: datetime) -> list[datetime]:
        """None, one or two at which the clocks show this."""
        candidates = [wall.replace(tzinfo=UTC) - offset for offset in self._offsets]
        return sorted(at for at in candidates if self.wall(at) == wall)

    def leap_over(self, wall: datetime) -> datetime:
        """When the clocks jump over this local time."""
        return next(leap.at for leap in self.leaps if leap.left <= wall < leap.reached)

    def midnight(self, day: date) -> datetime:
        """The first instant of that day."""
        wall = datetime.combine(day, time())
        return min(self.instants(wall), default=None) or self.leap_over(wall)

    def next_showing(self, clock: str, after: datetime) -> datetime:
        """The first instant later than `after` at which the clocks show that time of day."""
        days = [self.wall(after).date() + n * DAY for n in range(3)]
        shown = (self.instants(datetime.combine(day, time.fromisoformat(clock))) for day in days)
        return min(at for each in shown for at in each if at > after)


zone_of = lru_cache(maxsize=64)(Zone)


def numbers(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        base, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if base == "*" else base).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def by_date(field: str) -> Callable[[date], bool]:
    """The day of month: `L` is the last."""
    if field == "L":
        return lambda day: (day + DAY).day == 1
    days = numbers(field, 1, 31)
    return lambda day: day.day in days


def by_weekday(field: str) -> Callable[[date], bool]:
    """`5#2` is the second Friday, `L5` the last."""
    if field.startswith("L"):
        last = int(field[1:]), False
        return lambda day: (day.isoweekday() % 7, (day + 7 * DAY).month == day.month) == last

    if "#" in field:
        wanted, _, nth = (int(part) if part.isdigit() else 0 for part in field.partition("#"))
        return lambda day: day.isoweekday() % 7 == wanted and (day.day - 1) // 7 + 1 == nth
    days = numbers(field, 0, 6)
    return lambda day: day.isoweekday() % 7 in days


def matching_days(month: str, of_month: str, of_week: str) -> Iterator[date]:
    """Both day fields restricted: one of them is enough."""
    months, first, second = numbers(month, 1, 12), by_date(of_month), by_weekday(of_week)
    either = "*" not in (of_month, of_week)
    for n in range((END - START + 2 * MARGIN) // DAY):
        day = (START - MARGIN).date() + n * DAY
        if day.month in months and (any if either else all)((first(day), second(day))):
            yield day


def cron(rule: dict[str, Any]) -> Iterator[datetime]:
    """As cron(8) says: jobs at fixed times lose nothing to a gap, and run once in its opposite."""
    fields = rule["cron"].split()
    second = fields.pop(0) if len(fields) == 6 else "0"
    minute, hour, of_month, month, of_week = fields
    fixed = not (minute.startswith("*") or hour.startswith("*"))
    gap = rule.get("dst_gap", "next" if fixed else "skip")
    overlap = rule.get("dst_overlap", "first" if fixed else "both")
    kept = {"first": slice(1), "second": slice(-1, None), "both": slice(None)}[overlap]
    zone = zone_of(rule.get("timezone", "UTC"))
    clocks = [
        time(*each)
        for each in product(numbers(hour, 0, 23), numbers(minute, 0, 59), numbers(second, 0, 59))
    ]
    for day, clock in product(matching_days(month, of_month, of_week), clocks):
        wall = datetime.combine(day, clock)
        if shown := zone.instants(wall):
            yield from shown[kept]
        elif gap == "next":
            yield zone.leap_over(wall)


def every(rule: dict[str, Any], accepted_at: datetime) -> Iterator[datetime]:
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
    return zone.midnight(day) if which == "start" else zone.midnight(day + DAY) - TICK


def all_of(rule: dict[str, Any], accepted_at: datetime) -> Iterator[datetime]:
    match rule:
        case {"now": True}:
            yield accepted_at
        case {"at": at}:
            yield datetime.fromisoformat(at)
        case {"after": after}:
            yield accepted_at + duration(after)
        case {"every": _}:
            yield from every(rule, accepted_at)
        case {"cron": _}:
            yield from cron(rule)
        case _:
            for each in rule["any_of"]:
                yield from within_bounds(each, accepted_at)


def within_bounds(rule: dict[str, Any], accepted_at: datetime) -> Iterator[datetime]:
    start, end = bound(rule, "start"), bound(rule, "end")
    for at in all_of(rule, accepted_at):
        if (start is None or at >= start) and (end is None or at <= end):
            yield at


def instants(when: dict[str, Any], accepted_at: datetime) -> list[datetime]:
    """In order, each once, to the end of the stretch; a one-shot's also before acceptance."""
    is_once = bool(when.keys() & {"now", "at", "after"})
    found = {at for at in within_bounds(when, accepted_at) if at <= END}
    return sorted(at for at in found if is_once or at >= accepted_at)
