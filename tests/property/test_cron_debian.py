"""Cron expressions compared with an independent model of the loop of Debian cron.

The model follows cron(8). It steps through the minutes and uses no clock changes, no cached
intervals and no croniter.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import cycle, islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron import Cron

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
CORRECTION: Final = timedelta(hours=3)
TWO_YEARS: Final = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2028, 11, 1, tzinfo=UTC))
LINES_A_NIGHT: Final = 3
Ticks = tuple[tuple[datetime, datetime], ...]  # UTC times, each with its local time


@dataclass(frozen=True, kw_only=True)
class Line:
    """The five fields of a crontab line, as sets of numbers."""

    minute: frozenset[int]
    hour: frozenset[int]
    day: frozenset[int]
    month: frozenset[int]
    weekday: frozenset[int]
    either_day: bool
    wild: bool

    @classmethod
    def read(cls, text: str) -> "Line":
        written = text.split()
        return cls(
            minute=numbers(written[0], 0, 59),
            hour=numbers(written[1], 0, 23),
            day=numbers(written[2], 1, 31),
            month=numbers(written[3], 1, 12),
            weekday=numbers(written[4], 0, 6),
            either_day="*" not in (written[2], written[4]),
            wild=written[0].startswith("*") or written[1].startswith("*"),
        )

    def matches(self, at: datetime) -> bool:
        if at.minute not in self.minute or at.hour not in self.hour or at.month not in self.month:
            return False
        days = at.day in self.day, at.isoweekday() % 7 in self.weekday
        return any(days) if self.either_day else all(days)


def numbers(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        base, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if base == "*" else base).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def debian(line: Line, ticks: Ticks, tick: timedelta = MINUTE) -> list[datetime]:
    """Run the loop of cron. `virtual` is the time up to which all lines have run."""
    virtual, found = ticks[0][1] - tick, []
    for instant, local in ticks:
        jump = local - virtual - tick
        if jump == timedelta(0) or abs(jump) >= CORRECTION:
            virtual, due = local, line.matches(local)
        elif jump < timedelta(0):
            due = line.wild and line.matches(local)
        else:
            due = line.wild and line.matches(local)
            while virtual < local:
                virtual += tick
                due = due or (not line.wild and line.matches(virtual))
        if due:
            found.append(instant)
    return found


def chosen(line: Line, ticks: Ticks, gap: DstGap, overlap: DstOverlap) -> list[datetime]:
    """Return the times under an explicit rule, by counting how often each local time occurs."""
    shown, so_far, found = Counter(local for _, local in ticks), Counter[datetime](), []
    previous = ticks[0][1] - MINUTE
    for instant, local in ticks:
        so_far[local] += 1
        one_of = {DstOverlap.FIRST: so_far[local] == 1, DstOverlap.BOTH: True}
        due = line.matches(local) and one_of.get(overlap, so_far[local] == shown[local])
        while gap is DstGap.NEXT and (previous := previous + MINUTE) < local:
            due = due or line.matches(previous)
        previous = local
        if due:
            found.append(instant)
    return found


def ours(cron: Cron, ticks: Ticks) -> list[datetime]:
    moment, end = ticks[0][0] - timedelta(microseconds=1), ticks[-1][0]
    found = []
    while (following := cron.next_after(moment)) is not None and following <= end:
        found.append(moment := following)
    return found


def walked(zone: ZoneInfo, start: datetime, end: datetime, tick: timedelta = MINUTE) -> Ticks:
    count = (end - start) // tick
    instants = (start + n * tick for n in range(count))
    return tuple((at, at.astimezone(zone).replace(tzinfo=None, fold=0)) for at in instants)


@lru_cache(maxsize=1_024)
def night(zone: ZoneInfo, around: datetime) -> Ticks:
    return walked(zone, around - timedelta(hours=4), around + timedelta(hours=5))


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the hours in which the offset changes. No time zone changes twice in one day."""
    start, end = TWO_YEARS
    days = [start + n * DAY for n in range((end - start) // DAY + 1)]
    for day, following in pairwise(days):
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            hours = [day + timedelta(hours=n) for n in range(25)]
            offsets = [hour.astimezone(zone).utcoffset() for hour in hours]
            yield next(hour for hour, at in zip(hours, offsets, strict=True) if at != offsets[0])


@lru_cache(maxsize=1)
def all_changes() -> tuple[tuple[ZoneInfo, datetime], ...]:
    zones = [ZoneInfo(name) for name in sorted(available_timezones())]
    return tuple((zone, change) for zone in zones for change in changes(zone))


NIGHTLY: Final = (
    "30 2 * * *",
    "0 3 * * *",
    "30 1 * * *",
    "0,30 0-4 * * *",
    "59 1,2 * * *",
    "15 23,0,1 * * *",
    "0 * * * *",
    "*/15 2 * * *",
    "0 */2 * * *",
    "*/20 1-3 * * *",
    "30 */3 * * *",
    "7 * * * *",
    "0-59/10 2 * * *",
    "5 1-2 * * 0",
    "10 2,3 1-14 * 6",
    "* 2 * * 0",
    "45 0,1,2 */2 * 0,6",
    "* * * * *",
    "1-59/2 0-3 * * *",
    "0 0 * * *",
    "30 0 1-31 * *",
    "0 1 * 3,4,9-11 *",
)


@pytest.mark.long
@pytest.mark.requirement("S04", "ASK-8")
def test_clock_changes_of_two_years_in_every_zone_match_debian_cron() -> None:
    lines = cycle(NIGHTLY)

    wrong = [
        (text, zone.key, change)
        for zone, change in all_changes()
        for text in islice(lines, LINES_A_NIGHT)
        if ours(Cron.parse(text, zone.key), night(zone, change))
        != debian(Line.read(text), night(zone, change))
    ]

    assert len(all_changes()) > 500
    assert wrong == []


@pytest.mark.long
@pytest.mark.requirement("S04")
def test_ten_years_match_debian_cron() -> None:
    start, end, half_hour = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC), 30
    tick = timedelta(minutes=half_hour)
    texts = ("30 2 * * *", "0 */12 * * *", "30 1 1,15 * 0", "0 3 29 2 *", "0,30 2 */5 3-4,10-11 *")
    for name in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tehran"):
        ticks = walked(ZoneInfo(name), start, end, tick)
        for text in texts:
            assert ours(Cron.parse(text, name), ticks) == debian(Line.read(text), ticks, tick)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    spans = pair.map(lambda two: f"{two[0]}-{two[1]}")
    steps = st.integers(1, high - low + 1)
    item = st.one_of(
        st.just("*"),
        number.map(str),
        spans,
        st.builds("{}/{}".format, st.one_of(st.just("*"), spans), steps.filter(lambda n: n > 1)),
    )
    lists = st.lists(st.one_of(number.map(str), spans), min_size=2, max_size=4).map(",".join)
    return st.one_of(item, lists)


# The day fields keep to what matches often, or few of the nights would have a run.
LINES = st.builds(
    "{} {} {} * {}".format,
    field(0, 59),
    st.one_of(field(0, 4), field(0, 23)),
    st.sampled_from(["*", "*", "1-31", "*/2", "1-20"]),
    st.sampled_from(["*", "*", "0", "0,6", "1-5"]),
)
CHANGES = st.deferred(lambda: st.sampled_from(all_changes()))


@pytest.mark.requirement("S04")
@settings(max_examples=400)
@given(text=LINES, change=CHANGES)
def test_any_expression_matches_debian_cron_around_a_clock_change(
    text: str, change: tuple[ZoneInfo, datetime]
) -> None:
    zone, around = change
    ticks = night(zone, around)

    assert ours(Cron.parse(text, zone.key), ticks) == debian(Line.read(text), ticks)


@pytest.mark.requirement("S08")
@settings(max_examples=400)
@given(text=LINES, change=CHANGES, gap=st.sampled_from(DstGap), overlap=st.sampled_from(DstOverlap))
def test_explicit_dst_rule_is_applied(
    text: str, change: tuple[ZoneInfo, datetime], gap: DstGap, overlap: DstOverlap
) -> None:
    zone, around = change
    ticks = night(zone, around)
    cron = Cron.parse(text, zone.key, dst_gap=gap, dst_overlap=overlap)

    assert ours(cron, ticks) == chosen(Line.read(text), ticks, gap, overlap)
