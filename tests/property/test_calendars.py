"""Calendars, compared with decisions that examine every day or every quarter of an hour."""

from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from harebell.contract.policy import OnExcluded
from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.when import Recurring, When
from harebell.domain.calendars import (
    MAX_BOUNDARIES,
    MAX_SHIFT_DAYS,
    Calendar,
    CalendarRule,
    DayRange,
    ExcludedTime,
    KeptTime,
    ShiftedTime,
    WeeklyWindow,
    decide_time,
    end_of_blackout,
    nth_open_day,
)
from harebell.domain.recurrence import CalendarRecurrence, recurrence_of, times_after

BEGIN = date(2026, 3, 1)
QUARTER = timedelta(minutes=15)
MAX_BOUNDARIES_PER_DAY = 10  # of two calendars with two windows each, and midnight
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]

zones = st.sampled_from(ZONES).map(ZoneInfo)
days = st.integers(0, 400).map(lambda n: BEGIN + timedelta(days=n))
ranges = st.builds(
    lambda first, length: DayRange(first, first + timedelta(days=length)), days, st.integers(0, 20)
)
clocks = st.integers(0, 95).map(lambda n: time(n // 4, n % 4 * 15))
windows = st.builds(
    WeeklyWindow, st.frozensets(st.integers(0, 6), min_size=1, max_size=6), clocks, clocks
)
calendars = st.builds(
    lambda zone, days, windows: Calendar.create("c", zone, days=days, windows=windows),
    zones,
    st.lists(ranges, max_size=6),
    st.lists(windows, max_size=2),
)
moments = st.integers(0, 400 * 96).map(lambda n: datetime.combine(BEGIN, time(), UTC) + n * QUARTER)


def is_in(
    zone: ZoneInfo, given_ranges: list[DayRange], windows: list[WeeklyWindow], at: datetime
) -> bool:
    """Return whether a range or a window contains the instant, by the definition of both."""
    local = at.astimezone(zone)
    if any(each.first <= local.date() <= each.last for each in given_ranges):
        return True
    for window in windows:
        for begin_day in (local.date(), local.date() - timedelta(days=1)):
            begin = datetime.combine(begin_day, window.start)
            end = datetime.combine(begin_day, window.end)
            end += timedelta(days=window.end <= window.start)
            in_weekday = begin_day.weekday() in window.weekdays
            if in_weekday and begin <= local.replace(tzinfo=None) < end:
                return True
    return False


@given(
    zone=zones,
    given_ranges=st.lists(ranges, max_size=8),
    windows=st.lists(windows, max_size=3),
    at=moments,
)
def test_calendar_includes_the_times_of_its_ranges_and_windows(
    zone: ZoneInfo, given_ranges: list[DayRange], windows: list[WeeklyWindow], at: datetime
) -> None:
    calendar = Calendar.create("c", zone, days=given_ranges, windows=windows)

    assert calendar.includes(at) == is_in(zone, given_ranges, windows, at)
    for one, two in pairwise(calendar.ranges):
        assert two.first - one.last > timedelta(days=1)


@given(
    exclude=st.lists(calendars, max_size=2),
    include=st.lists(calendars, max_size=2),
    at=moments,
    zone=zones,
    on_excluded=st.sampled_from(OnExcluded),
)
def test_replacement_is_the_nearest_open_day(
    exclude: list[Calendar],
    include: list[Calendar],
    at: datetime,
    zone: ZoneInfo,
    on_excluded: OnExcluded,
) -> None:
    rule = CalendarRule(exclude=tuple(exclude), include=tuple(include), on_excluded=on_excluded)

    decision = decide_time(rule, at, zone)

    def is_open(moment: datetime) -> bool:
        if any(each.includes(moment) for each in exclude):
            return False
        return not include or any(each.includes(moment) for each in include)

    local = at.astimezone(zone)
    sign = -1 if on_excluded is OnExcluded.PREVIOUS else 1
    candidates = [
        # In a gap, the UTC offset before it gives a time as far after the gap as the gap is long.
        (local.replace(tzinfo=None, fold=0) + timedelta(days=sign * n)).replace(tzinfo=zone)
        for n in range(1, MAX_SHIFT_DAYS + 1)
    ]
    match decision:
        case KeptTime(kept):
            assert kept == at
            assert is_open(at)
        case ShiftedTime(found, calendar):
            assert (calendar, is_open(at), is_open(found)) == ("c", False, True)
            assert on_excluded is not OnExcluded.SKIP
            index = round(abs(found - at) / timedelta(days=1)) - 1
            gap = candidates[index].astimezone(UTC) - found
            assert timedelta(0) <= gap < timedelta(hours=1)
            in_gap = candidates[index].astimezone(UTC).astimezone(zone).time() != local.time()
            assert in_gap or gap == timedelta(0)
            exact = [each for each in candidates[:index] if not _is_in_gap(each)]
            assert not any(is_open(each) for each in exact)
        case ExcludedTime(calendar):
            assert (calendar, is_open(at)) == ("c", False)
            if on_excluded is not OnExcluded.SKIP:
                assert not any(is_open(each) for each in candidates if not _is_in_gap(each))


@st.composite
def rules(draw: st.DrawFn) -> CalendarRule:
    """Draw calendars with a treatment of excluded times or with an open day."""
    on_excluded = draw(st.sampled_from(OnExcluded))
    number = draw(st.sampled_from([None, 1, 2, 15, -1, -4]))
    return CalendarRule(
        exclude=tuple(draw(st.lists(calendars, max_size=2))),
        include=tuple(draw(st.lists(calendars, max_size=2))),
        on_excluded=on_excluded,
        open_day=number if on_excluded is OnExcluded.SKIP else None,
    )


@st.composite
def times_of_days(draw: st.DrawFn) -> When:
    """Draw a rule with few times on one day."""
    zone, hour = draw(st.sampled_from(ZONES)), draw(st.integers(0, 23))
    day = draw(st.sampled_from(["*", "1", "L", "*/3", "15,16"]))
    every = draw(st.integers(6, 100))
    start = datetime.combine(BEGIN, time(), UTC).isoformat()
    cron = {"cron": f"30 {hour} {day} * *", "timezone": zone}
    interval = {"every": f"{every}h", "start": start, "timezone": zone}
    both = {"any_of": [cron, interval], "timezone": zone}
    return draw(
        st.sampled_from([cron, interval, both]).map(TypeAdapter[When](When).validate_python)
    )


@settings(max_examples=30)
@given(when=times_of_days(), rule=rules(), after=moments)
def test_recurrence_has_the_decided_times_of_every_time_around(
    when: When, rule: CalendarRule, after: datetime
) -> None:
    policy = SchedulingPolicy(when=when)
    base = recurrence_of(policy, UUID(int=1), datetime.combine(BEGIN, time(), UTC))
    assert isinstance(when, Recurring)
    zone = ZoneInfo(when.timezone)
    until = after + timedelta(days=10)
    recurrence = CalendarRecurrence(base=base, rule=rule, zone=zone)

    times = list(takewhile(lambda time: time <= until, times_after(recurrence, after)))

    expected: dict[datetime, list[datetime]] = defaultdict(list)
    cursor: datetime | None = after - timedelta(days=63)
    while cursor is not None and cursor < until + timedelta(days=63):
        cursor = base.next_after(cursor)
        if cursor is None:
            break
        match decide_time(rule, cursor, zone):
            case KeptTime(at):
                day = at.astimezone(zone).date()
                if rule.open_day is None or day == nth_open_day(rule, day, rule.open_day):
                    expected[at] += []
            case ShiftedTime(at, _):
                expected[at].append(cursor)
            case ExcludedTime():
                pass
    assert times == sorted(each for each in expected if after < each <= until)
    assert [recurrence.next_after(each) for each in (after, *times)][:-1] == times
    for each in times:
        assert [at for at, _ in recurrence.times_moved_to(each)] == expected[each]


ENDS_IN_A_GAP = Calendar.create(
    "c",
    ZoneInfo("America/New_York"),
    windows=[WeeklyWindow(frozenset([6]), time(0, 0), time(2, 15))],
)


def _is_in_gap(local: datetime) -> bool:
    zone = local.tzinfo
    return local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None)


@given(blackouts=st.lists(calendars, max_size=2), at=moments)
@example(blackouts=[ENDS_IN_A_GAP], at=datetime(2026, 3, 8, 5, tzinfo=UTC))
def test_blackout_holds_back_until_its_first_open_instant(
    blackouts: list[Calendar], at: datetime
) -> None:
    end = end_of_blackout(blackouts, at)

    if any(each.includes(end) for each in blackouts):  # windows without a gap between them
        assert end - at >= timedelta(days=MAX_BOUNDARIES // MAX_BOUNDARIES_PER_DAY)
    moment, last = at, min(end, at + timedelta(days=30))
    while moment < last:
        assert any(each.includes(moment) for each in blackouts), moment
        moment += QUARTER


@given(exclude=st.lists(calendars, max_size=2), day=days, number=st.integers(-32, 32).filter(bool))
def test_nth_open_day_counts_the_open_days_of_its_month(
    exclude: list[Calendar], day: date, number: int
) -> None:
    rule = CalendarRule(exclude=tuple(exclude))
    first = day.replace(day=1)
    month = [first + timedelta(days=n) for n in range(31)]
    month = [each for each in month if each.month == day.month and rule.is_open_day(each)]

    found = nth_open_day(rule, day, number)

    if abs(number) > len(month):
        assert found is None
    else:
        assert found == (month[number - 1] if number > 0 else month[number])
