"""Recurrences with calendars: the open times, the excluded times and the bound of a search."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from harebell.contract.calendar import PinnedCalendar, ScheduleCalendars
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.domain.calendars import ExcludedTime, ShiftedTime
from harebell.domain.recurrence import CalendarRecurrence, Recurrence, next_times, recurrence_of
from harebell.domain.validation import MAX_MOVED_TIMES, check_calendars, check_pinned

ID = UUID(int=1)
NOON = datetime(2027, 12, 23, 12, tzinfo=UTC)
ALL_DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
HOURLY = {"cron": "0 * * * *"}


def recurrence(when: dict[str, Any], *pinned: dict[str, Any], **calendars: Any) -> Recurrence:
    definition = Definition.model_validate(
        {
            "when": when,
            "target": {"task": {"name": "acme.report"}},
            "calendars": calendars,
            "pinned_calendars": [{"version": 1, **each} for each in pinned],
        }
    )
    return recurrence_of(definition, ID, NOON)


def test_next_after_returns_the_first_time_after_an_excluded_range() -> None:
    holidays = {"name": "holidays", "days": ["2027-12-24/2027-12-26"]}
    daily = recurrence({"cron": "0 9 * * *"}, holidays, exclude=["holidays"])

    found = next_times(daily, NOON, 2)

    assert found == [datetime(2027, 12, 27, 9, tzinfo=UTC), datetime(2027, 12, 28, 9, tzinfo=UTC)]


def test_next_after_searches_a_second_rule_across_a_month_in_few_steps() -> None:
    closed = {"name": "closed", "days": ["2027-12-01/2027-12-31"]}
    every_second = recurrence({"cron": "* * * * * *"}, closed, exclude=["closed"])

    assert every_second.next_after(NOON) == datetime(2028, 1, 1, tzinfo=UTC)


def test_next_after_returns_none_if_every_time_is_excluded() -> None:
    never = {"name": "never", "weekly": [{"weekdays": ALL_DAYS}]}

    assert recurrence(HOURLY, never, exclude=["never"]).next_after(NOON) is None


def test_next_after_returns_none_after_the_last_day_of_an_included_calendar() -> None:
    days = {"name": "days", "days": ["2027-12-30"]}
    hourly = recurrence(HOURLY, days, include=["days"])

    found = next_times(hourly, NOON, 30)

    assert (len(found), found[0]) == (24, datetime(2027, 12, 30, tzinfo=UTC))


def test_excluded_calendar_wins_over_an_included_one() -> None:
    days = {"name": "days", "days": ["2027-12-24/2027-12-25"]}
    holiday = {"name": "holiday", "days": ["2027-12-24"]}
    daily = recurrence({"cron": "0 9 * * *"}, days, holiday, include=["days"], exclude=["holiday"])

    assert next_times(daily, NOON, 2) == [datetime(2027, 12, 25, 9, tzinfo=UTC)]


def test_exclusion_names_the_calendar_of_an_excluded_time_only() -> None:
    holidays = {"name": "holidays", "days": ["2027-12-24"]}
    hourly = recurrence(HOURLY, holidays, exclude=["holidays"])
    assert isinstance(hourly, CalendarRecurrence)
    excluded = datetime(2027, 12, 24, 9, tzinfo=UTC)

    found = [hourly.exclusion_at(excluded + timedelta(minutes=each)) for each in (0, 1)]

    assert found == [ExcludedTime("holidays"), None]
    assert hourly.exclusion_at(NOON) is None


@pytest.mark.parametrize(
    ("on_excluded", "days"), [("skip", [30]), ("next", [27, 30]), ("previous", [23, 30])]
)
def test_excluded_time_moves_to_the_nearest_open_day(on_excluded: str, days: list[int]) -> None:
    holidays = {"name": "holidays", "days": ["2027-12-24/2027-12-26"]}
    twice = recurrence(
        {"cron": "0 13 25,30 12 *"}, holidays, exclude=["holidays"], on_excluded=on_excluded
    )

    found = next_times(twice, NOON, len(days))
    later = twice.next_after(NOON + timedelta(days=3))

    assert found == [datetime(2027, 12, day, 13, tzinfo=UTC) for day in days]
    # The time of 25 December has passed, and its run is still to come.
    assert later == datetime(2027, 12, 27 if on_excluded == "next" else 30, 13, tzinfo=UTC)


@pytest.mark.parametrize("on_excluded", ["next", "previous"])
def test_times_that_move_to_one_time_are_one_run_with_both_origins(on_excluded: str) -> None:
    holidays = {"name": "holidays", "days": ["2027-12-25/2027-12-26"]}
    daily = recurrence(
        {"cron": "0 13 * * *"}, holidays, exclude=["holidays"], on_excluded=on_excluded
    )
    assert isinstance(daily, CalendarRecurrence)
    target = datetime(2027, 12, 27 if on_excluded == "next" else 24, 13, tzinfo=UTC)
    excluded = [datetime(2027, 12, day, 13, tzinfo=UTC) for day in (25, 26)]

    times = next_times(daily, NOON, 4)
    origins = daily.times_moved_to(target)
    decisions = [daily.exclusion_at(each) for each in excluded]

    assert [each.day for each in times] == [23, 24, 27, 28]
    assert origins == [(each, "holidays") for each in excluded]
    assert decisions == [ShiftedTime(target, "holidays")] * 2


def test_moved_time_keeps_the_local_time_of_the_schedule() -> None:
    sunday = {"name": "sunday", "weekly": [{"weekdays": ["sun"]}], "timezone": "Europe/Berlin"}
    when = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "start": "2027-03-26"}
    monthly = recurrence({**when, "cron": "0 9 L * *"}, sunday, exclude=["sunday"])
    moved = recurrence(
        {**when, "cron": "0 9 31 10 *"}, sunday, exclude=["sunday"], on_excluded="next"
    )
    october = datetime(2027, 10, 1, tzinfo=UTC)

    assert monthly.next_after(october) == datetime(2027, 11, 30, 8, tzinfo=UTC)
    # 31 October 2027 is a Sunday, on which the clocks go back.
    assert moved.next_after(october) == datetime(2027, 11, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("on_excluded", ["next", "previous"])
def test_search_passes_an_excluded_period_of_years(on_excluded: str) -> None:
    closed = {"name": "closed", "days": ["2027-12-24/2040-06-30"]}
    daily = recurrence({"cron": "0 13 * * *"}, closed, exclude=["closed"], on_excluded=on_excluded)

    found = next_times(daily, NOON, 2)

    reopened = datetime(2040, 7, 1, 13, tzinfo=UTC)
    assert found == [datetime(2027, 12, 23, 13, tzinfo=UTC), reopened]


@pytest.mark.parametrize(
    ("when", "count"),
    [
        ({"cron": "0 */4 * * *"}, 6),
        ({"every": "5h"}, 5),
        ({"any_of": [{"cron": "0 9,17 * * *"}, {"every": "8h"}]}, 5),
        ({"cron": "0,30 0 9-10 * * *"}, 4),
        ({"every": "6h"}, 4),
    ],
)
def test_check_rejects_moves_of_a_frequent_rule(when: dict[str, Any], count: int) -> None:
    fields = {"when": when, "target": {"task": {"name": "a"}}}
    calendars = {"exclude": ["holidays"]}
    skipping = Definition.model_validate({**fields, "calendars": calendars})
    moving = Definition.model_validate(
        {**fields, "calendars": {**calendars, "on_excluded": "next"}}
    )

    check_calendars(skipping.calendars, skipping.when)
    if count <= MAX_MOVED_TIMES:
        check_calendars(moving.calendars, moving.when)
        return
    with pytest.raises(InvalidInput, match=f"not {count}") as error:
        check_calendars(moving.calendars, moving.when)

    assert (error.value.code, error.value.field) == ("too_frequent", "calendars.on_excluded")


def test_recurrence_rejects_a_calendar_without_its_content() -> None:
    with pytest.raises(InvalidInput) as error:
        recurrence(HOURLY, exclude=["holidays"])

    assert error.value.code == "unknown_calendar"


@pytest.mark.parametrize(
    "when", [{"now": True}, {"after": "1h"}, {"every": "1h", "from": "completion"}]
)
def test_check_rejects_calendars_of_a_rule_without_fixed_times(when: dict[str, Any]) -> None:
    definition = Definition.model_validate(
        {"when": when, "target": {"task": {"name": "a"}}, "calendars": {"exclude": ["holidays"]}}
    )

    with pytest.raises(InvalidInput) as error:
        check_calendars(definition.calendars, definition.when)

    assert (error.value.code, error.value.field) == ("not_recurring", "calendars")


def test_check_rejects_pinned_calendars_of_a_user() -> None:
    with pytest.raises(InvalidInput) as error:
        check_pinned([{"name": "holidays"}])

    assert error.value.code == "read_only_field"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"days": ["2027-02-30"]}, "invalid_days"),
        ({"days": ["2027-12-26/2027-12-24"]}, "invalid_days"),
        ({"days": ["20271224"]}, "invalid_days"),
        ({}, "empty_calendar"),
    ],
)
def test_calendar_rejects_invalid_content(content: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse(PinnedCalendar, {"name": "a", "version": 1, **content})

    assert error.value.code == code


@pytest.mark.requirement("ASK-9")
@pytest.mark.parametrize(
    ("open_day", "days"),
    [
        # 1 January 2028 is a Saturday, and 3 January is a holiday here.
        (1, [date(2028, 1, 4), date(2028, 2, 1), date(2028, 3, 1)]),
        (4, [date(2028, 1, 7), date(2028, 2, 4), date(2028, 3, 6)]),
        (-1, [date(2027, 12, 31), date(2028, 1, 31), date(2028, 2, 29)]),
        (-2, [date(2027, 12, 30), date(2028, 1, 28), date(2028, 2, 28)]),
        (22, [date(2027, 12, 30), date(2028, 3, 30), date(2028, 5, 30)]),
    ],
)
def test_open_day_keeps_the_times_of_one_open_day_of_each_month(
    open_day: int, days: list[date]
) -> None:
    weekend = {"name": "weekend", "weekly": [{"weekdays": ["sat", "sun"]}]}
    holidays = {"name": "holidays", "days": ["2028-01-03"]}
    names = ["weekend", "holidays"]
    daily = recurrence({"cron": "0 9 * * *"}, weekend, holidays, exclude=names, open_day=open_day)

    found = next_times(daily, NOON, 3)

    assert [each.date() for each in found] == days
    assert {each.hour for each in found} == {9}


def test_open_day_is_a_day_in_the_time_zone_of_the_schedule() -> None:
    sunday = {"name": "sunday", "weekly": [{"weekdays": ["sun"]}], "timezone": "Pacific/Auckland"}
    when = {"cron": "0 0,23 * * *", "timezone": "Pacific/Auckland"}
    both = recurrence(when, sunday, exclude=["sunday"], open_day=1)

    found = next_times(both, NOON, 2)

    assert found == [
        datetime(2027, 12, 31, 11, tzinfo=UTC),
        datetime(2028, 1, 1, 10, tzinfo=UTC),
    ]


def test_open_day_that_no_month_has_gives_no_time() -> None:
    weekend = {"name": "weekend", "weekly": [{"weekdays": ["sat", "sun"]}]}

    daily = recurrence({"cron": "0 9 * * *"}, weekend, exclude=["weekend"], open_day=24)

    assert daily.next_after(NOON) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"open_day": 0}, "invalid_open_day"),
        ({"open_day": 32}, "less_than_equal"),
        ({"open_day": 1, "on_excluded": "next"}, "open_day_moved"),
    ],
)
def test_calendars_reject_an_invalid_open_day(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as error:
        ScheduleCalendars.model_validate({"exclude": ["weekend"], **fields})

    assert [each["type"] for each in error.value.errors()] == [reason]
