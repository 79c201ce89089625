"""Blackouts: the due times of held runs, their calendars, and the checks of a definition."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from tests.fakes.schedules import ID, FakePlanning, definition
from tests.fakes.tickets import NINE, after

from harebell.contract.calendar import MAX_BLACKOUTS
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.contract.ticket import RunSpec
from harebell.domain.calendars import MAX_BOUNDARIES
from harebell.domain.planned_times import PlannedSchedule, PlannedSpan, planned_spans
from harebell.domain.planner import StartDelays
from harebell.domain.preview import NoteKind, describe_run
from harebell.domain.recurrence import blackouts_of
from harebell.domain.run_states import ScheduleState
from harebell.domain.timetables import DueTimesCache, Timetable, datetime_of
from harebell.domain.validation import check_calendars
from harebell.domain.versions import VersionWindow

# `NINE` is a Friday.
FREEZE = {"name": "freeze", "weekly": [{"weekdays": ["fri"], "from": "09:01", "to": "09:03"}]}
SHORT = {"name": "short", "weekly": [{"weekdays": ["fri"], "from": "09:03", "to": "09:04"}]}
HOLIDAY = {"name": "holiday", "days": ["2026-11-21"]}
ALWAYS = {"name": "always", "weekly": [{"weekdays": ["mon", "tue", "wed", "thu", "fri", "sat"]}]}
SUNDAYS = {"name": "sundays", "weekly": [{"weekdays": ["sun"]}]}
EVERY_30_S = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


def with_blackout(*pinned: dict[str, Any], when: Any = None, **fields: Any) -> Definition:
    names = [each["name"] for each in pinned]
    return definition(
        EVERY_30_S if when is None else when,
        calendars={"blackout": names},
        pinned_calendars=[{"version": 1, **each} for each in pinned],
        **fields,
    )


def due_time(policy: Definition, time: datetime) -> datetime:
    return StartDelays.of(policy).due_time(RunKey(time, ID))


@pytest.mark.requirement("ASK-9")
def test_run_within_a_blackout_is_due_at_its_end_and_keeps_its_scheduled_time() -> None:
    planning = FakePlanning(with_blackout(FREEZE)).plan_until_horizon(NINE, until=after(210))

    assert planning.times == [after(30 * number) for number in range(8)]
    assert [run.due_at for run in planning.runs] == [
        NINE,
        after(30),
        *[after(180)] * 4,  # of 60, 90, 120 and 150 s
        after(180),
        after(210),
    ]


@pytest.mark.requirement("ASK-9")
def test_adjacent_blackouts_of_two_calendars_hold_back_until_the_last_ends() -> None:
    both = with_blackout(FREEZE, SHORT)

    assert due_time(both, after(60)) == after(240)
    assert due_time(both, after(240)) == after(240)


@pytest.mark.requirement("ASK-9")
def test_jitter_comes_before_the_blackout() -> None:
    """A run that the jitter moves into the blackout waits for the end of the blackout."""
    jittered = with_blackout(FREEZE, when={**EVERY_30_S, "jitter": "10m"})
    delays = StartDelays.of(jittered)
    keys = [RunKey(after(number), ID) for number in range(-600, 240)]

    due = {key: delays.due_time(key) for key in keys}
    held = [key for key in keys if delays.blackout_of(key) is not None]

    assert held
    assert {due[key] for key in held} == {after(180)}
    assert all(after(60) <= delays.with_jitter(key) < after(180) for key in held)
    assert all(due[key] == delays.with_jitter(key) for key in keys if key not in held)


@pytest.mark.requirement("ASK-9")
@pytest.mark.parametrize(
    "when",
    [
        {"now": True},
        {"after": "1m"},
        {"at": "2026-11-20T09:02:00Z"},
        {"every": "1m", "from": "completion"},
    ],
)
def test_each_rule_may_have_a_blackout(when: dict[str, Any]) -> None:
    policy = with_blackout(FREEZE, when=when)

    check_calendars(policy.calendars, policy.when)
    (run,) = FakePlanning(policy, after(60)).plan_until_horizon(after(60), after(130)).runs[:1]

    assert run.due_at == after(180)


def test_excluded_calendar_still_needs_a_recurring_rule() -> None:
    excluded = definition({"now": True}, calendars={"exclude": ["freeze"], "blackout": ["freeze"]})

    with pytest.raises(InvalidInput) as error:
        check_calendars(excluded.calendars, excluded.when)

    assert error.value.code == "not_recurring"


@pytest.mark.requirement("ASK-9")
def test_blackout_excludes_no_time_that_another_calendar_decides() -> None:
    policy = definition(
        {"cron": "0 9 * * *"},
        calendars={"exclude": ["holiday"], "blackout": ["freeze"]},
        pinned_calendars=[{"version": 1, **each} for each in (HOLIDAY, FREEZE)],
    )

    planning = FakePlanning(policy, after(-60)).plan_until_horizon(after(-60), NINE + days(3))

    assert planning.times == [NINE, NINE + days(2), NINE + days(3)]


@pytest.mark.requirement("ASK-9")
def test_blackout_without_an_end_holds_back_for_many_boundaries() -> None:
    """The executor checks the run again at that time, so it never starts within the blackout."""
    never = with_blackout(ALWAYS, SUNDAYS)

    due = due_time(never, NINE)

    assert due - NINE >= days(MAX_BOUNDARIES - 1)
    assert due_time(never, due) > due


@pytest.mark.requirement("ASK-9")
def test_run_that_expires_within_a_blackout_keeps_its_expiry() -> None:
    (run,) = (
        FakePlanning(with_blackout(FREEZE, when={"now": True}, expires_after="10s"), after(60))
        .plan_until_horizon(after(60))
        .runs
    )

    assert (run.due_at, run.expires_at) == (after(180), after(70))


@pytest.mark.parametrize(
    ("calendars", "code"),
    [
        ({"blackout": [f"b{n}" for n in range(MAX_BLACKOUTS + 1)]}, "too_long"),
        ({"blackout": []}, "no_calendar"),
        ({"blackout": ["freeze"], "on_excluded": "next"}, "no_calendar"),
        ({"blackout": ["freeze"], "open_day": 1}, "no_calendar"),
    ],
)
def test_definition_is_invalid(calendars: dict[str, Any], code: str) -> None:
    with pytest.raises(ValidationError) as error:
        definition(EVERY_30_S, calendars=calendars)

    assert [each["type"] for each in error.value.errors()] == [code]


def test_definition_without_the_content_of_its_blackout_names_the_calendar() -> None:
    with pytest.raises(InvalidInput, match="The calendar freeze must be pinned"):
        blackouts_of(definition(EVERY_30_S, calendars={"blackout": ["freeze"]}))


@pytest.mark.requirement("ASK-9")
def test_ticket_contains_the_blackouts_and_no_other_calendar() -> None:
    policy = definition(
        EVERY_30_S,
        calendars={"exclude": ["holiday"], "blackout": ["freeze"]},
        pinned_calendars=[{"version": 1, **HOLIDAY}, {"version": 3, **FREEZE}],
    )

    spec = parse(RunSpec, RunSpec.from_definition("acme", policy.to_json()))
    without = RunSpec.from_definition("acme", definition(EVERY_30_S).to_json())

    assert [(each.name, each.version) for each in spec.blackouts] == [("freeze", 3)]
    assert blackouts_of(policy) == blackouts_of(with_blackout(FREEZE))
    assert "blackouts" not in without


@pytest.mark.requirement("ASK-9")
def test_preview_names_the_calendar_that_holds_back_a_run() -> None:
    window = VersionWindow(schedule_id=ID, policy=with_blackout(FREEZE), since=NINE)

    held, free = describe_run(window, after(90)), describe_run(window, after(30))

    assert held.due_at == after(180)
    assert [note.text for note in held.notes if note.about is NoteKind.BLACKOUT] == [
        "The blackout by the calendar freeze holds back the start until 2026-11-20T09:03:00Z."
    ]
    assert (free.due_at, free.notes) == (after(30), ())


def span_of(policy: Definition, cache: DueTimesCache, until: float) -> PlannedSpan:
    window = VersionWindow(schedule_id=ID, policy=policy, since=NINE)
    timetable = Timetable(ID, policy, window.recurrence, NINE, NINE)
    schedule = PlannedSchedule((timetable,), ScheduleState.ACTIVE, NINE, after(30))
    (span,) = planned_spans(schedule, now=NINE, until=after(until), cache=cache)
    return span


@pytest.mark.requirement("ASK-9", "ASK-3")
def test_planned_times_are_due_at_the_end_of_a_blackout_and_name_it() -> None:
    cache = DueTimesCache()
    span = span_of(with_blackout(FREEZE), cache, 210)

    due = [datetime_of(each) for each in span.due_times(cache)]

    assert due == [after(30), *[after(180)] * 5, after(210)]
    assert Counter(span.holding_calendars(cache)) == {"freeze": 4}
    assert list(span.excluding_calendars(cache)) == []


@pytest.mark.requirement("ASK-9", "ASK-3")
def test_planned_times_name_the_calendar_of_each_excluded_time() -> None:
    cache = DueTimesCache()
    policy = definition(
        {"cron": "0,30 * * * * *"},
        calendars={"exclude": ["freeze"]},
        pinned_calendars=[{"version": 1, **FREEZE}],
    )

    span = span_of(policy, cache, 210)
    first = Counter(span.excluding_calendars(cache))
    computed = cache.computed
    again = Counter(span.excluding_calendars(cache))

    assert first == again == {"freeze": 4}
    assert cache.computed == computed  # the cache keeps the times
    assert list(span.holding_calendars(cache)) == []


def days(count: int) -> timedelta:
    return timedelta(days=count)
