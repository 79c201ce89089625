"""What we take for a cron expression, and what we refuse, where and why."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from harebell.contract.errors import InvalidCron
from harebell.domain.cron import Cron

SAME = [
    ("5-5 * * * *", "5 * * * *"),
    ("0 0 1-1 * *", "0 0 1 * *"),
    ("0 0 * * 3-3", "0 0 * * 3"),
    ("0 0 * * 7", "0 0 * * 0"),
    ("0 0 * * SUN", "0 0 * * 0"),
    ("0 0 * * 5-7", "0 0 * * 5,6,0"),
    ("0 0 * * 0-7", "0 0 * * *"),
    ("0 0 * * mon-Fri", "0 0 * * 1-5"),
    ("0 0 1 JAN,jul *", "0 0 1 1,7 *"),
    ("0 0 ? * ?", "0 0 * * *"),
    ("0 0 1 * ?", "0 0 1 * *"),
    ("*/1 */1 * * *", "* * * * *"),
    ("0-59 * * * *", "* * * * *"),
    ("*/60 * * * *", "0 * * * *"),
    ("10-20/7 * * * *", "10,17 * * * *"),
    ("10-10/5 * * * *", "10 * * * *"),
    ("5,5,5,1-3 * * * *", "1,2,3,5 * * * *"),
    ("05 007 * * *", "5 7 * * *"),
    ("0 0 */1 * 1", "0 0 * * 1"),
    ("  0\t0  *  * * ", "0 0 * * *"),
    ("0 0 l * *", "0 0 L * *"),
    ("0 0 * * lfri", "0 0 * * L5"),
    ("0 0 * * L7", "0 0 * * L0"),
    ("0 0 * * fri#2", "0 0 * * 5#2"),
    ("0 0 15w * *", "0 0 15W * *"),
    ("0 0 0 * * *", "0 0 * * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("0 0 29 2 *", "0 0 29 FEB *"),
    ("0 0 31 2 0", "0 0 * 2 SUN"),
]

REFUSED = [
    ("", 0, "0 fields"),
    ("   ", 3, "0 fields"),
    ("* * * *", 7, "4 fields"),
    ("0 0 12 * * * 2026", 13, "7 fields"),
    ("75 * * * *", 0, "minute 75 is over 59"),
    ("0 24 * * *", 2, "hour 24 is over 23"),
    ("0 0 0 * *", 4, "day of month 0 is under 1"),
    ("0 0 32 * *", 4, "day of month 32 is over 31"),
    ("0 0 1 13 *", 6, "month 13 is over 12"),
    ("0 0 * * 8", 8, "day of week 8 is over 7"),
    ("60 0 0 * * *", 0, "second 60 is over 59"),
    ("0,61 * * * *", 2, "minute 61 is over 59"),
    ("0 22-2 * * *", 2, "range 22-2 is reversed"),
    ("0 0 * * FRI-MON", 8, "range FRI-MON is reversed"),
    ("0 0 * * SAT-SUN", 8, "Sunday is 7"),
    ("0 0 1 DEC-JAN *", 6, "range DEC-JAN is reversed"),
    ("5/2 * * * *", 0, "needs * or a range"),
    ("/2 * * * *", 0, "needs * or a range"),
    ("0 0 * * 3/2", 8, "needs * or a range"),
    ("*/0 * * * *", 2, "step of 0"),
    ("*/61 * * * *", 2, "longer than the minute field (60)"),
    ("0 */25 * * *", 4, "longer than the hour field (24)"),
    ("*/ * * * *", 2, "is missing"),
    ("*/x * * * *", 2, "X is not a minute"),
    ("*/5/5 * * * *", 2, "5/5 is not a minute"),
    ("1-2-3 * * * *", 2, "2-3 is not a minute"),
    ("-5 * * * *", 0, "is missing"),
    ("5- * * * *", 2, "is missing"),
    ("1,,2 * * * *", 2, "is missing"),
    (", * * * *", 0, "is missing"),
    ("** * * * *", 0, "** is not a minute"),
    ("1.5 * * * *", 0, "1.5 is not a minute"),
    ("MON * * * *", 0, "MON is not a minute"),
    ("0 0 * * JAN", 8, "JAN is not a day of week"),
    ("0 0 * MONDAY *", 6, "MONDAY is not a month"),
    ("R * * * *", 0, "H draws once"),
    ("0 r(1-5) * * *", 2, "H draws once"),
    ("0 0 ~ * *", 4, "~ is not a day of month"),
    ("? * * * *", 0, "only in the day fields"),
    ("0 0 ?,1 * *", 4, "? is not a day of month"),
    ("H5 * * * *", 0, "is not H"),
    ("H(5) * * * *", 2, "H takes a range"),
    ("H(1-5 * * * *", 0, "is not H"),
    ("H(50-70) * * * *", 5, "minute 70 is over 59"),
    ("H(9-3) * * * *", 2, "range 9-3 is reversed"),
    ("H/0 * * * *", 2, "step of 0"),
    ("0 0 LW * *", 4, "LW is not supported"),
    ("0 0 L-3 * *", 4, "L-3 is not supported"),
    ("0 0 W15 * *", 4, "W15 is not supported"),
    ("0 0 32W * *", 4, "day of month 32 is over 31"),
    ("0 0 1,15W * *", 6, "cannot stand in a list"),
    ("0 0 * * L", 8, "L5 is the last Friday"),
    ("0 0 * * 5L", 8, "the last Friday is written L5"),
    ("0 0 * * 1#6", 10, "1 to 5"),
    ("0 0 * * 1#0", 10, "1 to 5"),
    ("0 0 * * 1#", 10, "1 to 5"),
    ("0 0 * * MON,2#1", 12, "plain weekdays"),
    ("0 0 * * 1-5#2", 8, "1-5 is not a day of week"),
    ("0 0 13 * 5#2", 9, "5#2 needs the other day field to be *"),
    ("0 0 13 * L5", 9, "L5 needs the other day field to be *"),
    ("0 0 L * 5#2", 8, "5#2 needs the other day field to be *"),
    ("0 0 15W * 1", 4, "15W needs the other day field to be *"),
    ("@reboot", 0, "@reboot has no time"),
    (" @never", 1, "not one of @yearly"),
    ("@DAILY", 0, "not one of"),
    ("CRON_TZ=UTC 0 0 * * *", 0, "time zone is a field"),
    ("TZ=UTC 0 0 * * *", 0, "time zone is a field"),
    ("0 0 * * *\n", 9, "'\\n' is not a printable ASCII"),
    ("0 0 * *\xa0*", 7, "'\\xa0' is not a printable ASCII"),
    ("\u0661 0 * * *", 0, "is not a printable ASCII"),
    ("0 0 * * *\x00", 9, "is not a printable ASCII"),
    ("0 0 31 2 *", None, "never runs"),
    ("0 0 30,31 2 *", None, "never runs"),
    ("0 0 31 2,4,6,9,11 *", None, "never runs"),
]


def runs(expression: str, n: int = 40) -> list[datetime]:
    cron, moment = Cron.parse(expression), datetime(2026, 11, 1, 0, 0, 30, tzinfo=UTC)
    found = []
    for _ in range(n):
        following = cron.next_after(moment)
        assert following is not None
        found.append(moment := following)
    return found


@pytest.mark.requirement("S04")
@pytest.mark.parametrize(("written", "plain"), SAME)
def test_one_rule_can_be_written_in_many_ways(written: str, plain: str) -> None:
    assert runs(written) == runs(plain)


@pytest.mark.requirement("S12")
@pytest.mark.parametrize(("expression", "position", "reason"), REFUSED)
def test_a_refusal_says_where_and_why(expression: str, position: int | None, reason: str) -> None:
    with pytest.raises(InvalidCron) as refusal:
        Cron.parse(expression)

    assert refusal.value.position == position
    assert reason in refusal.value.reason
    assert refusal.value.expression == expression


@pytest.mark.requirement("S04")
@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("7 0 0 1 1 *", "2027-01-01 00:00:07"),
        ("0 7 0 1 1 *", "2027-01-01 00:07:00"),
        ("0 0 7 1 1 *", "2027-01-01 07:00:00"),
        ("0 0 0 7 1 *", "2027-01-07 00:00:00"),
        ("0 0 0 1 7 *", "2027-07-01 00:00:00"),
        ("0 0 0 * 1 3", "2027-01-06 00:00:00"),
    ],
)
def test_with_six_fields_seconds_are_first(expression: str, first: str) -> None:
    assert runs(expression, 1) == [datetime.fromisoformat(first).replace(tzinfo=UTC)]


@pytest.mark.requirement("S04")
def test_seconds_count() -> None:
    steps = {later - earlier for earlier, later in pairwise(runs("*/10 * * * * *"))}

    assert [step.total_seconds() for step in steps] == [10]


@pytest.mark.requirement("S04", "ASK-24")
def test_both_day_fields_restricted_mean_either() -> None:
    days = runs("0 0 13 * FRI", 60)

    assert all(day.day == 13 or day.isoweekday() == 5 for day in days)
    assert {day.isoweekday() for day in days if day.day == 13} != {5}


@pytest.mark.requirement("S04")
def test_a_step_over_a_day_field_restricts_it_as_the_manual_says() -> None:
    days = runs("0 0 */2 * MON", 60)

    assert any(day.day % 2 == 0 for day in days)
    assert any(day.isoweekday() != 1 for day in days)


@pytest.mark.requirement("S04")
def test_a_cron_says_what_was_written() -> None:
    cron = Cron.parse("0 9 * * MON-FRI", "Europe/Berlin")

    assert cron.expression == "0 9 * * MON-FRI"
    assert cron.zone.key == "Europe/Berlin"
