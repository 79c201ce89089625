"""Last days, nearest weekdays, nth weekdays: against plain date arithmetic, over ten years."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pytest

from harebell.domain.cron import Cron

DAY: Final = timedelta(days=1)
FIRST, END = date(2026, 1, 1), date(2036, 1, 1)
MON, FRI, SAT, SUN = 1, 5, 6, 7


def last(day: date) -> bool:
    return (day + DAY).day == 1


def last_of_its_kind(day: date) -> bool:
    return (day + 7 * DAY).month != day.month


def week(day: date) -> int:
    return (day.day - 1) // 7 + 1


def nearest_to(wanted: int) -> Callable[[date], bool]:
    """Is this the weekday nearest to that day of its own month?"""

    def is_it(day: date) -> bool:
        month = [day.replace(day=1) + n * DAY for n in range(31)]
        weekdays = [d for d in month if d.month == day.month and d.isoweekday() < SAT]
        length = max(d.day for d in month if d.month == day.month)
        aim = min(wanted, length)
        return day == min(weekdays, key=lambda d: abs(d.day - aim))

    return is_it


@pytest.mark.requirement("S04", "ASK-24")
@pytest.mark.parametrize(
    ("expression", "counts"),
    [
        ("0 0 L * *", last),
        ("0 0 15,L * *", lambda day: day.day == 15 or last(day)),
        ("0 0 30,L * *", lambda day: day.day == 30 or last(day)),
        ("0 0 L 2 *", lambda day: day.month == 2 and last(day)),
        ("0 0 L * MON", lambda day: last(day) or day.isoweekday() == MON),
        ("0 0 * * L5", lambda day: day.isoweekday() == FRI and last_of_its_kind(day)),
        ("0 0 * * L7", lambda day: day.isoweekday() == SUN and last_of_its_kind(day)),
        ("0 0 ? * L1,L5", lambda day: day.isoweekday() in (MON, FRI) and last_of_its_kind(day)),
        ("0 0 * * 5#1", lambda day: day.isoweekday() == FRI and week(day) == 1),
        ("0 0 * * MON#5", lambda day: day.isoweekday() == MON and week(day) == 5),
        ("0 0 * 2 1#5", lambda day: day.month == 2 and day.isoweekday() == MON and week(day) == 5),
        ("0 0 * * 7#2", lambda day: day.isoweekday() == SUN and week(day) == 2),
        ("0 0 * * 1#1,5#3", lambda day: (day.isoweekday(), week(day)) in {(MON, 1), (FRI, 3)}),
        ("0 0 * * 1#1,L1", lambda d: d.isoweekday() == MON and (d.day < 8 or last_of_its_kind(d))),
        ("0 0 1W * *", nearest_to(1)),
        ("0 0 15W * *", nearest_to(15)),
        ("0 0 31W * *", nearest_to(31)),
        ("0 0 29 2 *", lambda day: (day.month, day.day) == (2, 29)),
        ("0 0 31 * *", lambda day: day.day == 31),
        ("0 0 13 * FRI", lambda day: day.day == 13 or day.isoweekday() == FRI),
        ("0 0 31 2,3 SAT", lambda d: d.month in (2, 3) and (d.day == 31 or d.isoweekday() == SAT)),
    ],
)
def test_special_days_match_the_calendar(expression: str, counts: Callable[[date], bool]) -> None:
    days = [FIRST + n * DAY for n in range((END - FIRST).days)]

    assert runs(expression) == [day for day in days if counts(day)]


def runs(expression: str) -> list[date]:
    cron, found = Cron.parse(expression), []
    moment = datetime.combine(FIRST, datetime.min.time(), UTC) - DAY / 2
    while (following := cron.next_after(moment)) is not None and following.date() < END:
        assert following.time() == datetime.min.time()
        found.append(following.date())
        moment = following
    return found
