"""Calendars: holidays, weekends, business hours, and their decisions across clock changes."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from harebell.contract.policy import OnExcluded
from harebell.domain.calendars import (
    MAX_BOUNDARIES,
    Calendar,
    CalendarDecision,
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

BERLIN = ZoneInfo("Europe/Berlin")
CHRISTMAS = Calendar.create(
    "holidays", BERLIN, days=[DayRange(date(2026, 12, 25), date(2026, 12, 26))]
)
WEEKEND = Calendar.create("weekend", BERLIN, windows=[WeeklyWindow(frozenset({5, 6}))])
HOURS = Calendar.create(
    "hours", BERLIN, windows=[WeeklyWindow(frozenset(range(5)), time(9), time(17))]
)
NIGHT = Calendar.create("night", BERLIN, windows=[WeeklyWindow(frozenset({4}), time(22), time(6))])


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def decide(text: str, on_excluded: OnExcluded) -> CalendarDecision:
    rule = CalendarRule(exclude=(CHRISTMAS, WEEKEND), on_excluded=on_excluded)
    return decide_time(rule, berlin(text).astimezone(UTC), BERLIN)


@pytest.mark.parametrize(
    ("text", "on_excluded", "expected"),
    [
        ("2026-12-24T09:00", OnExcluded.SKIP, KeptTime(berlin("2026-12-24T09:00"))),
        ("2026-12-25T09:00", OnExcluded.SKIP, ExcludedTime("holidays")),
        # 26 December 2026 is a Saturday and in both calendars, so the first one decides.
        ("2026-12-26T09:00", OnExcluded.SKIP, ExcludedTime("holidays")),
        ("2026-12-27T09:00", OnExcluded.SKIP, ExcludedTime("weekend")),
        (
            "2026-12-25T09:00",
            OnExcluded.NEXT,
            ShiftedTime(berlin("2026-12-28T09:00"), "holidays"),
        ),
        (
            "2026-12-27T09:00",
            OnExcluded.PREVIOUS,
            ShiftedTime(berlin("2026-12-24T09:00"), "weekend"),
        ),
    ],
)
def test_first_excluding_calendar_decides(
    text: str, on_excluded: OnExcluded, expected: CalendarDecision
) -> None:
    assert decide(text, on_excluded) == expected


def test_replacement_in_a_gap_is_the_instant_after_the_gap() -> None:
    saturday = Calendar.create("saturday", BERLIN, windows=[WeeklyWindow(frozenset({5}))])
    rule = CalendarRule(exclude=(saturday,), on_excluded=OnExcluded.NEXT)

    decision = decide_time(rule, berlin("2026-03-28T02:30"), BERLIN)

    assert decision == ShiftedTime(datetime(2026, 3, 29, 1, tzinfo=UTC), "saturday")


def test_time_without_an_open_day_within_the_bound_is_excluded() -> None:
    years = Calendar.create("closed", BERLIN, days=[DayRange(date(2026, 1, 1), date(2027, 12, 31))])
    rule = CalendarRule(exclude=(years,), on_excluded=OnExcluded.NEXT)

    assert decide_time(rule, berlin("2026-06-01T09:00"), BERLIN) == ExcludedTime("closed")


def test_time_outside_every_included_calendar_is_excluded_by_the_first_one() -> None:
    rule = CalendarRule(include=(HOURS, NIGHT))

    decisions = [
        decide_time(rule, berlin(text), BERLIN)
        for text in ("2026-11-20T09:00", "2026-11-20T17:00", "2026-11-21T05:59", "2026-11-21T06:00")
    ]

    assert [isinstance(each, KeptTime) for each in decisions] == [True, False, True, False]
    assert decisions[1] == ExcludedTime("hours")


def test_nth_business_day_omits_weekends_and_holidays() -> None:
    rule = CalendarRule(exclude=(CHRISTMAS, WEEKEND))
    december = date(2026, 12, 15)

    assert nth_open_day(rule, december, 1) == date(2026, 12, 1)
    assert nth_open_day(rule, december, 5) == date(2026, 12, 7)
    assert nth_open_day(rule, december, -1) == date(2026, 12, 31)
    assert nth_open_day(rule, december, -5) == date(2026, 12, 24)
    assert nth_open_day(rule, december, 23) is None
    with pytest.raises(ValueError, match="must not be 0"):
        nth_open_day(rule, december, 0)


def test_business_hours_make_business_days() -> None:
    rule = CalendarRule(include=(HOURS,))

    assert nth_open_day(rule, date(2026, 11, 1), 1) == date(2026, 11, 2)  # 1 November is a Sunday


@pytest.mark.parametrize(
    ("at", "end"),
    [
        ("2026-11-20T21:59", "2026-11-20T21:59"),
        ("2026-11-20T22:00", "2026-11-23T00:00"),  # the night leads into the weekend
        ("2026-12-25T12:00", "2026-12-28T00:00"),
        ("2026-10-24T12:00", "2026-10-26T00:00"),  # the clocks go back within the weekend
    ],
)
def test_adjacent_blackouts_hold_back_until_the_last_ends(at: str, end: str) -> None:
    blackouts = (NIGHT, WEEKEND, CHRISTMAS)

    assert end_of_blackout(blackouts, berlin(at).astimezone(UTC)) == berlin(end)


def test_blackout_without_an_end_holds_back_until_the_last_examined_boundary() -> None:
    always = Calendar.create("always", BERLIN, windows=[WeeklyWindow(frozenset(range(7)))])

    end = end_of_blackout((always,), berlin("2026-11-20T12:00"))

    assert end == berlin("2026-11-20T00:00") + timedelta(days=MAX_BOUNDARIES)
    assert always.includes(end)


def test_reversed_range_is_an_error() -> None:
    with pytest.raises(ValueError, match="must not be before 2026-12-25"):
        DayRange(date(2026, 12, 25), date(2026, 12, 24))
