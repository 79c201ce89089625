"""The next time of a schedule whose excluded times move to other days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from harebell.contract.policy import OnExcluded
from harebell.domain.calendars import Calendar, CalendarRule, DayRange, WeeklyWindow
from harebell.domain.moved_times import MovedTimes
from harebell.domain.recurrence import FixedInterval

ZONE = ZoneInfo("UTC")
CLOSED = date(2026, 3, 10)


@dataclass
class ListedTimes:
    """The times of a list, with the number of searches."""

    times: Sequence[datetime]
    searches: int = 0

    def next_after(self, after: datetime) -> datetime | None:
        self.searches += 1
        return next((each for each in sorted(self.times) if each > after), None)


def at(day: int, hour: int) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


@pytest.mark.requirement("ASK-9")
@pytest.mark.parametrize(
    ("on_excluded", "times", "after", "expected"),
    [
        pytest.param(
            OnExcluded.PREVIOUS, [at(9, 18), at(10, 9)], at(9, 8), at(9, 9), id="moved_back"
        ),
        pytest.param(
            OnExcluded.PREVIOUS, [at(9, 18), at(10, 9)], at(9, 9), at(9, 18), id="after_the_move"
        ),
        pytest.param(
            OnExcluded.NEXT, [at(10, 18), at(11, 9)], at(10, 0), at(11, 9), id="moved_forward"
        ),
        pytest.param(
            OnExcluded.NEXT, [at(10, 18), at(11, 9)], at(11, 9), at(11, 18), id="moved_last"
        ),
    ],
)
def test_earliest_result_is_next_in_spite_of_the_order_of_the_times(
    on_excluded: OnExcluded, times: list[datetime], after: datetime, expected: datetime
) -> None:
    closed = Calendar.create("holidays", ZONE, days=[DayRange(CLOSED, CLOSED)])
    rule = CalendarRule(exclude=(closed,), on_excluded=on_excluded)

    moved = MovedTimes(times=ListedTimes(times), rule=rule, zone=ZONE)

    open_times = [each for each in times if each > after and rule.excluding(each) is None]
    assert moved.next_after(after, min(open_times, default=None)) == expected


@pytest.mark.requirement("ASK-9")
def test_time_moves_over_days_that_are_never_open_as_a_whole() -> None:
    """The search back for moved times finds no open window of a day."""
    closed = Calendar.create("closed", ZONE, days=[DayRange(CLOSED, date(2026, 3, 20))])
    every_day = frozenset(range(7))
    lunch = Calendar.create("lunch", ZONE, windows=[WeeklyWindow(every_day, time(12), time(13))])
    rule = CalendarRule(exclude=(closed, lunch), on_excluded=OnExcluded.NEXT)
    moved = MovedTimes(times=ListedTimes([at(10, 9)]), rule=rule, zone=ZONE)

    assert moved.next_after(at(15, 0), None) == at(21, 9)


@pytest.mark.requirement("ASK-9")
def test_search_passes_a_long_closed_period() -> None:
    """The times of the last sixty days move to every hour of the first open day."""
    opening = datetime(2028, 3, 10, tzinfo=UTC)
    closed = Calendar.create("closed", ZONE, days=[DayRange(CLOSED, date(2028, 3, 9))])
    rule = CalendarRule(exclude=(closed,), on_excluded=OnExcluded.NEXT)
    times = FixedInterval(at(1, 5), timedelta(hours=7), end=None)
    kept = times.next_after(opening)
    moved = MovedTimes(times=times, rule=rule, zone=ZONE)

    assert kept is not None
    assert kept > opening
    assert moved.next_after(at(12, 0), kept) == opening


@pytest.mark.requirement("P6")
def test_searches_for_consecutive_times_examine_each_time_once() -> None:
    """The first of two times a day is never open, so each search goes back sixty days."""
    days = [datetime(2026, 3, 10, tzinfo=UTC) + timedelta(days=each) for each in range(-60, 60)]
    times = ListedTimes([day + timedelta(hours=hour) for day in days for hour in (9, 18)])
    hours = WeeklyWindow(frozenset(range(7)), time(9), time(10))
    closed = Calendar.create("closed", ZONE, windows=[hours])
    rule = CalendarRule(exclude=(closed,), on_excluded=OnExcluded.NEXT)
    moved = MovedTimes(times=times, rule=rule, zone=ZONE)

    found = [moved.next_after(at(day, 18), at(day + 1, 18)) for day in range(10, 20)]

    assert found == [at(day + 1, 18) for day in range(10, 20)]
    assert times.searches < 200  # and 1,400 if each search examines every time again
