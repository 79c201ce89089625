"""Last days, nearest weekdays, nth weekdays: against plain date arithmetic, over ten years."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pytest

from harebell.contract.errors import InvalidCron
from harebell.contract.when import DayMatch
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


@pytest.mark.requirement("S04", "ASK-24")
@pytest.mark.parametrize(
    ("expression", "counts"),
    [
        ("0 0 1-7 * MON", lambda day: day.day <= 7 and day.isoweekday() == MON),
        ("0 0 */2 * MON", lambda day: day.day % 2 == 1 and day.isoweekday() == MON),
        ("0 0 L * FRI", lambda day: last(day) and day.isoweekday() == FRI),
        ("0 0 13,L * 5,7", lambda d: (d.day == 13 or last(d)) and d.isoweekday() in (FRI, SUN)),
        ("0 0 29 2 7", lambda day: (day.month, day.day, day.isoweekday()) == (2, 29, SUN)),
        ("0 0 * * MON", lambda day: day.isoweekday() == MON),
        ("0 0 13 * *", lambda day: day.day == 13),
        ("0 0 15W * ?", nearest_to(15)),
    ],
)
def test_date_matches_both_day_fields(expression: str, counts: Callable[[date], bool]) -> None:
    days = [FIRST + n * DAY for n in range((END - FIRST).days)]

    assert runs(expression, DayMatch.BOTH) == [day for day in days if counts(day)]


@pytest.mark.requirement("ASK-24")
def test_day_that_no_month_has_matches_no_date_with_both_fields() -> None:
    with pytest.raises(InvalidCron, match="no date matches"):
        Cron.parse("0 0 31 2 MON", day_match=DayMatch.BOTH)


@pytest.mark.requirement("ASK-24")
@pytest.mark.parametrize(
    ("expression", "differs"),
    [
        ("0 0 */2 * MON", True),
        ("0 0 13 * */2", True),
        ("0 0 */2,5 * MON", True),
        ("0 0 */1 * MON", False),
        ("0 0 13 * FRI", False),
        ("0 0 */2 * *", False),
        ("0 0 ? * */2", False),
        ("@weekly", False),
    ],
)
def test_expression_that_debian_reads_differently_is_known(
    expression: str,
    differs: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    assert Cron.parse(expression).differs_in_debian is differs
    assert not Cron.parse(expression, day_match=DayMatch.BOTH).differs_in_debian


def runs(expression: str, day_match: DayMatch | None = None) -> list[date]:
    cron, found = Cron.parse(expression, day_match=day_match), []
    moment = datetime.combine(FIRST, datetime.min.time(), UTC) - DAY / 2
    while (following := cron.next_after(moment)) is not None and following.date() < END:
        assert following.time() == datetime.min.time()
        found.append(following.date())
        moment = following
    return found
