"""The dialect of cron expressions: accepted forms and errors."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import pytest

from harebell.contract.errors import InvalidCron
from harebell.domain.cron import Cron

DAY_RULE: Final = (
    "The day of month must be a number, L (the last day) or a form like 15W (the nearest weekday)"
)
NICKNAME_RULE: Final = (
    "The nickname must be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"
)
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
    ("20/10 * * * *", "20-59/10 * * * *"),
    ("0/15,50/20 * * * *", "0,15,30,45,50 * * * *"),
    ("0 5/7 * * *", "0 5,12,19 * * *"),
    ("0 0 5/10 * *", "0 0 5,15,25 * *"),
    ("0 0 1 feb/5 *", "0 0 1 2,7,12 *"),
    ("0 0 * * 3/2", "0 0 * * 3,5"),
    ("0 0 * * fri/1", "0 0 * * 5,6"),
    ("0 0 * * 7/2", "0 0 * * 0,2,4,6"),
    ("15/20 0 0 * * *", "15,35,55 0 0 * * *"),
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
    ("", 0, "The expression must have five fields, or six with seconds first, not 0."),
    ("   ", 3, "The expression must have five fields, or six with seconds first, not 0."),
    ("* * * *", 7, "The expression must have five fields, or six with seconds first, not 4."),
    (
        "0 0 12 * * * root",
        13,
        "The expression must have five fields, or six with seconds first, not 7.",
    ),
    ("75 * * * *", 0, "The minute must be from 0 to 59, not 75."),
    ("0 24 * * *", 2, "The hour must be from 0 to 23, not 24."),
    ("0 0 0 * *", 4, "The day of month must be from 1 to 31, not 0."),
    ("0 0 32 * *", 4, "The day of month must be from 1 to 31, not 32."),
    ("0 0 1 13 *", 6, "The month must be from 1 to 12, not 13."),
    ("0 0 * * 8", 8, "The day of week must be from 0 to 7, not 8."),
    ("60 0 0 * * *", 0, "The second must be from 0 to 59, not 60."),
    ("0,61 * * * *", 2, "The minute must be from 0 to 59, not 61."),
    ("0 22-2 * * *", 2, "The range 22-2 must not be reversed."),
    ("0 0 * * FRI-MON", 8, "The range FRI-MON must not be reversed."),
    (
        "0 0 * * SAT-SUN",
        8,
        "The range SAT-SUN must not be reversed. At the end of a range, Sunday is 7.",
    ),
    ("0 0 1 DEC-JAN *", 6, "The range DEC-JAN must not be reversed."),
    ("/2 * * * *", 0, "A step must follow *, a value or a range, not ''."),
    ("60/2 * * * *", 0, "The minute must be from 0 to 59, not 60."),
    ("5/0 * * * *", 2, "The step of the minute must be from 1 to 60, not 0."),
    ("5/90 * * * *", 2, "The step of the minute must be from 1 to 60, not 90."),
    ("5/ * * * *", 2, "The minute must not be empty."),
    ("H5/2 * * * *", 0, "The form must be H, H(a-b), H/n or H(a-b)/n, not 'H5'."),
    ("0 0 L/2 * *", 4, "The day of month must be a number, not 'L'."),
    ("0 0 15W/2 * *", 4, "The day of month must be a number, not '15W'."),
    ("*/0 * * * *", 2, "The step of the minute must be from 1 to 60, not 0."),
    ("*/61 * * * *", 2, "The step of the minute must be from 1 to 60, not 61."),
    ("0 */25 * * *", 4, "The step of the hour must be from 1 to 24, not 25."),
    ("*/ * * * *", 2, "The minute must not be empty."),
    ("*/x * * * *", 2, "The minute must be a number, not 'X'."),
    ("*/5/5 * * * *", 2, "The minute must be a number, not '5/5'."),
    ("1-2-3 * * * *", 2, "The minute must be a number, not '2-3'."),
    ("-5 * * * *", 0, "The minute must not be empty."),
    ("5- * * * *", 2, "The minute must not be empty."),
    ("1,,2 * * * *", 2, "The minute must not be empty."),
    (", * * * *", 0, "The minute must not be empty."),
    ("** * * * *", 0, "The minute must be a number, not '**'."),
    ("1.5 * * * *", 0, "The minute must be a number, not '1.5'."),
    ("MON * * * *", 0, "The minute must be a number, not 'MON'."),
    ("0 0 * * JAN", 8, "The day of week must be a number or a name, not 'JAN'."),
    ("0 0 * MONDAY *", 6, "The month must be a number or a name, not 'MONDAY'."),
    ("R * * * *", 0, "A random value must be written as H, which never changes, not as R."),
    ("0 r(1-5) * * *", 2, "A random value must be written as H, which never changes, not as R."),
    ("0 0 ~ * *", 4, "The day of month must be a number, not '~'."),
    ("? * * * *", 0, "The character ? is for the day fields only, not for the minute."),
    ("0 0 ?,1 * *", 4, "The day of month must be a number, not '?'."),
    ("H5 * * * *", 0, "The form must be H, H(a-b), H/n or H(a-b)/n, not 'H5'."),
    ("H(5) * * * *", 2, "The part in parentheses must be a range, such as H(0-29)."),
    ("H(1-5 * * * *", 0, "The form must be H, H(a-b), H/n or H(a-b)/n, not 'H(1-5'."),
    ("H(50-70) * * * *", 5, "The minute must be from 0 to 59, not 70."),
    ("H(9-3) * * * *", 2, "The range 9-3 must not be reversed."),
    ("H/0 * * * *", 2, "The step of the minute must be from 1 to 60, not 0."),
    (
        "0 0 LW * *",
        4,
        f"{DAY_RULE}, not 'LW'.",
    ),
    (
        "0 0 L-3 * *",
        4,
        f"{DAY_RULE}, not 'L-3'.",
    ),
    (
        "0 0 W15 * *",
        4,
        f"{DAY_RULE}, not 'W15'.",
    ),
    ("0 0 32W * *", 4, "The day of month must be from 1 to 31, not 32."),
    ("0 0 1,15W * *", 6, "The item '15W' must not be in a list."),
    ("0 0 * * L", 8, "L in the day of week requires a day, such as L5 for the last Friday."),
    ("0 0 * * 5L", 8, "The last Friday must be written as L5, not as '5L'."),
    ("0 0 * * 1#6", 10, "The part after # must be a number from 1 to 5, not '6'."),
    ("0 0 * * 1#0", 10, "The part after # must be a number from 1 to 5, not '0'."),
    ("0 0 * * 1#", 10, "The part after # must be a number from 1 to 5, not ''."),
    ("0 0 * * MON,2#1", 12, "The item '2#1' must not be in a list with plain days of the week."),
    ("0 0 * * 1-5#2", 8, "The day of week must be a number or a name, not '1-5'."),
    ("0 0 13 * 5#2", 9, "The item '5#2' requires * in the other day field."),
    ("0 0 13 * L5", 9, "The item 'L5' requires * in the other day field."),
    ("0 0 L * 5#2", 8, "The item '5#2' requires * in the other day field."),
    ("0 0 15W * 1", 4, "The item '15W' requires * in the other day field."),
    ("@reboot", 0, "The nickname @reboot has no scheduled time."),
    (
        " @never",
        1,
        f"{NICKNAME_RULE}, not '@never'.",
    ),
    (
        "@DAILY",
        0,
        f"{NICKNAME_RULE}, not '@DAILY'.",
    ),
    ("@every 5m", 0, 'The field every has intervals: write {"every": "5m"}.'),
    ("rate(5 minutes)", 0, 'The field every has intervals: write {"every": "5m"}.'),
    ("rate(1 day)", 0, 'The field every has intervals: write {"every": "1d"}.'),
    (
        "at(2026-11-20T09:00:00)",
        0,
        'The field at has one time: write {"at": "2026-11-20T09:00:00Z"}, or another offset.',
    ),
    (" cron(0 12 * * ? *)", 1, "EventBridge has other fields: write '0 12 * * *'."),
    ("cron(0 9 ? * 2-6 *)", 0, "EventBridge has other fields: write '0 9 * * 1-5'."),
    ("0 9 ? * MON#2 *", 0, "EventBridge has other fields: write '0 9 * * MON#2'."),
    (
        "cron(15 10 ? * 6L 2022-2023)",
        0,
        "EventBridge has other fields: write '15 10 * * 5L', with start and end for the years.",
    ),
    (
        "cron(0 12)",
        0,
        "The expression must be without cron( and ), and with the weekdays 0 to 6.",
    ),
    (
        "0 0 12 * * ? 2026",
        0,
        "A year is no field: write '0 0 12 * * ?', with start and end for the years.",
    ),
    (
        "CRON_TZ=UTC 0 0 * * *",
        0,
        "The time zone must be in the field `timezone`, not in the expression.",
    ),
    (
        "TZ=UTC 0 0 * * *",
        0,
        "The time zone must be in the field `timezone`, not in the expression.",
    ),
    ("0 0 * * *\n", 9, "The expression must be printable ASCII and must not contain '\\n'."),
    ("0 0 * *\xa0*", 7, "The expression must be printable ASCII and must not contain '\\xa0'."),
    ("\u0661 0 * * *", 0, "The expression must be printable ASCII and must not contain '\\u0661'."),
    ("0 0 * * *\x00", 9, "The expression must be printable ASCII and must not contain '\\x00'."),
    ("0 0 31 2 *", None, "The expression must match a date, and no date matches."),
    ("0 0 30,31 2 *", None, "The expression must match a date, and no date matches."),
    ("0 0 31 2,4,6,9,11 *", None, "The expression must match a date, and no date matches."),
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
def test_equivalent_expressions_have_the_same_times(written: str, plain: str) -> None:
    assert runs(written) == runs(plain)


@pytest.mark.requirement("S12")
@pytest.mark.parametrize(("expression", "position", "reason"), REFUSED)
def test_error_contains_position_and_reason(
    expression: str, position: int | None, reason: str
) -> None:
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
def test_first_of_six_fields_is_the_second(expression: str, first: str) -> None:
    assert runs(expression, 1) == [datetime.fromisoformat(first).replace(tzinfo=UTC)]


@pytest.mark.requirement("S04")
def test_seconds_field_is_respected() -> None:
    steps = {later - earlier for earlier, later in pairwise(runs("*/10 * * * * *"))}

    assert [step.total_seconds() for step in steps] == [10]


@pytest.mark.requirement("S04", "ASK-24")
def test_two_restricted_day_fields_match_either_day() -> None:
    days = runs("0 0 13 * FRI", 60)

    assert all(day.day == 13 or day.isoweekday() == 5 for day in days)
    assert {day.isoweekday() for day in days if day.day == 13} != {5}


@pytest.mark.requirement("S04")
def test_step_in_a_day_field_restricts_the_field() -> None:
    days = runs("0 0 */2 * MON", 60)

    assert any(day.day % 2 == 0 for day in days)
    assert any(day.isoweekday() != 1 for day in days)


@pytest.mark.requirement("S04")
def test_cron_keeps_its_expression() -> None:
    cron = Cron.parse("0 9 * * MON-FRI", "Europe/Berlin")

    assert cron.expression == "0 9 * * MON-FRI"
    assert cron.zone.key == "Europe/Berlin"
