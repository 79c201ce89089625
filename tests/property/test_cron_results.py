"""The results of each expression: later than the argument, constant, and with few matcher calls."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import available_timezones

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron import Cron
from harebell.domain.cron.matcher import CronMatcher
from harebell.domain.cron.next_time import MAX_SEARCH_STEPS, next_time_after
from harebell.domain.cron.parser import parse

# Zones with the oddest pasts: a skipped day, half hours, two hours, whole days, negative summers.
ODD: Final = (
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Asia/Manila",
    "Europe/Dublin",
    "Antarctica/Casey",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Africa/Monrovia",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Tehran",
    "Pacific/Kwajalein",
    "America/Caracas",
)
EXPRESSIONS: Final = (
    "* * * * * *",
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0 */2 * * *",
    "0 0 1 1 *",
    "0 0 29 2 *",
    "15 1-3 * * 0",
    "0 0 L * *",
    "30 2 * * L7",
    "0 3 15W * *",
    "0 0 * * 1#5",
    "*/10 30 2 * * *",
    "59 59 23 * * *",
    "0 12 31 * 6",
)
ALL_ZONES: Final = sorted(available_timezones() - {"Factory", "localtime"})
ZONES = st.one_of(st.sampled_from(ODD), st.sampled_from(ALL_ZONES))
CRONS = st.builds(
    Cron.parse,
    st.sampled_from(EXPRESSIONS),
    ZONES,
    dst_gap=st.sampled_from([None, *DstGap]),
    dst_overlap=st.sampled_from([None, *DstOverlap]),
)
MOMENTS = st.datetimes(
    datetime(1905, 1, 1),  # noqa: DTZ001  # the strategy adds the zone
    datetime(2100, 1, 1),  # noqa: DTZ001  # as above
    timezones=st.just(UTC),
)


class Counting:
    """A matcher that counts its calls."""

    def __init__(self, calendar: CronMatcher) -> None:
        self.matcher = calendar
        self.asked = 0

    def next_after(self, wall: datetime) -> datetime | None:
        self.asked += 1
        return self.matcher.next_after(wall)


def near_a_change(cron: Cron, moment: datetime) -> datetime:
    """Return a time shortly before the next clock change within 18 months, or the argument."""
    low, high = moment, moment
    for _ in range(80):
        low, high = high, high + timedelta(days=7)
        if low.astimezone(cron.zone).utcoffset() != high.astimezone(cron.zone).utcoffset():
            break
    else:
        return moment
    while high - low > timedelta(seconds=2):
        middle = low + (high - low) / 2
        same = middle.astimezone(cron.zone).utcoffset() == low.astimezone(cron.zone).utcoffset()
        low, high = (middle, high) if same else (low, middle)
    return low


@pytest.mark.requirement("S12")
@settings(max_examples=400)
@given(cron=CRONS, moment=MOMENTS, hours=st.floats(-3, 3))
def test_next_time_is_later_and_needs_few_matcher_calls(
    cron: Cron, moment: datetime, hours: float
) -> None:
    counting = Counting(cron.matcher)
    stood = near_a_change(cron, moment) + timedelta(hours=hours)

    following = next_time_after(stood, cron.zone, rule=cron.dst, matcher=counting)

    assert following is None or following > stood
    assert counting.asked <= MAX_SEARCH_STEPS


@pytest.mark.requirement("S04")
@settings(max_examples=200)
@given(cron=CRONS, moment=MOMENTS, steps=st.lists(st.floats(0, 30), min_size=3, max_size=12))
def test_times_do_not_depend_on_the_calls(cron: Cron, moment: datetime, steps: list[float]) -> None:
    start = near_a_change(cron, moment) - timedelta(minutes=90)
    looks = [start + timedelta(minutes=15 * step) for step in steps]

    remembered = [cron.next_after(look) for look in looks]

    assert remembered == [
        next_time_after(look, cron.zone, rule=cron.dst, matcher=cron.matcher) for look in looks
    ]


@pytest.mark.requirement("S04")
@settings(max_examples=100)
@given(cron=CRONS, moment=MOMENTS)
def test_no_time_is_between_two_consecutive_times(cron: Cron, moment: datetime) -> None:
    runs = [near_a_change(cron, moment) - timedelta(hours=1)]
    for _ in range(6):
        following = next_time_after(runs[-1], cron.zone, rule=cron.dst, matcher=cron.matcher)
        if following is None:
            break
        runs.append(following)

    for earlier, later in pairwise(runs):
        between = earlier + (later - earlier) / 2
        assert next_time_after(between, cron.zone, rule=cron.dst, matcher=cron.matcher) == later


@given(
    day=st.sampled_from(["*", "31", "30,31", "29", "L", "1,L", "28-31/3"]),
    month=st.sampled_from(["*", "2", "2,4", "6-9", "11,12"]),
    weekday=st.sampled_from(["*", "0", "5,7", "1#5", "2#1,4#5", "L3", "L0,6#2"]),
    time=st.sampled_from(["0 0", "59 23", "*/20 *", "30 0 0", "59 59 23"]),
    start=st.datetimes(datetime(1900, 1, 1), datetime(2600, 1, 1)),  # noqa: DTZ001  # local times
)
def test_dates_are_those_of_croniter(
    day: str, month: str, weekday: str, time: str, start: datetime
) -> None:
    """Compare the search by dates with croniter, which tries each month of fifty years."""
    if ("#" in weekday or "L" in weekday) and day != "*":
        day = "*"
    text = parse(f"{time} {day} {month} {weekday}", None).text
    local = start.replace(microsecond=0)
    try:
        expected = croniter(text, local).get_next(datetime, start_time=local)
    except CroniterBadDateError:
        expected = None

    assert CronMatcher(text).next_after(local) == expected
