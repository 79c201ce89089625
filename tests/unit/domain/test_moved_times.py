"""The next time of a schedule whose excluded times move to other days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from harebell.contract.policy import OnExcluded
from harebell.domain.calendars import Calendar, CalendarRule, DayRange
from harebell.domain.moved_times import MovedTimes

ZONE = ZoneInfo("UTC")
CLOSED = date(2026, 3, 10)


@dataclass
class ListedTimes:
    """The times of a list."""

    times: Sequence[datetime]

    def next_after(self, after: datetime) -> datetime | None:
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
