"""The catch-up policy after an outage."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fakes.schedules import HORIZON, FakePlanning, definition, seconds, skipped_range
from tests.fakes.tickets import NINE, after

from harebell.domain.planner import MAX_CALENDAR_STEPS, MAX_STEPS, MISSED_AFTER
from harebell.domain.run_states import Reason

MINUTELY = {"every": "1m"}
OPEN = {
    "calendars": {"exclude": ["closed"]},
    "pinned_calendars": [{"name": "closed", "version": 1, "days": ["2040-01-01"]}],
}
OUTAGE = after(600)  # ten minutes, and the instant of now is not missed


def minutes(*numbers: int) -> list[datetime]:
    return [NINE + timedelta(minutes=number) for number in numbers]


@pytest.mark.requirement("ASK-6")
@pytest.mark.parametrize(
    ("policy", "runs", "skipped"),
    [
        pytest.param({"mode": "none"}, minutes(9, 10, 11), 8, id="none"),
        pytest.param({"mode": "one"}, minutes(8, 9, 10, 11), 7, id="one"),
        pytest.param({"mode": "all"}, minutes(*range(1, 12)), 0, id="all"),
        pytest.param({"mode": "all", "max": 3}, minutes(*range(6, 12)), 5, id="the latest few"),
        pytest.param(
            {"mode": "all", "window": "5m"}, minutes(*range(5, 12)), 4, id="all in the window"
        ),
        pytest.param({"mode": "one", "window": "1m"}, minutes(9, 10, 11), 8, id="one, too old"),
        pytest.param({"mode": "one", "window": "2m"}, minutes(8, 9, 10, 11), 7, id="just in"),
    ],
)
def test_catch_up_policy_decides_missed_times_after_an_outage(
    policy: dict[str, Any], runs: list[datetime], skipped: int
) -> None:
    planning = FakePlanning(definition(MINUTELY, catch_up=policy))

    planning.plan_until_horizon(OUTAGE)

    assert planning.times == runs
    assert planning.skipped_count == skipped


def test_skipped_times_form_one_range_with_count_and_reason() -> None:
    planning = FakePlanning(definition(MINUTELY))

    planning.plan_until_horizon(OUTAGE)

    (first, last) = minutes(1, 7)
    assert planning.skipped == [skipped_range(first, last, 7, Reason.MISSED)]


@pytest.mark.parametrize(("beyond", "runs"), [(timedelta(0), 1), (timedelta(milliseconds=1), 0)])
def test_time_is_missed_only_after_more_than_a_minute(beyond: timedelta, runs: int) -> None:
    policy = {"mode": "none"}
    planning = FakePlanning(definition({"every": "1h"}, catch_up=policy))
    due = NINE + timedelta(hours=1)

    planning.plan_until_horizon(due + MISSED_AFTER + beyond)

    assert len(planning.runs) == runs


@pytest.mark.requirement("S55")
@pytest.mark.parametrize(("mode", "made_up"), [("none", 0), ("one", 1), ("all", 100)])
@pytest.mark.parametrize(
    ("missed", "calendars"),
    [
        (missed, calendars)
        for steps, calendars in ((MAX_STEPS, {}), (MAX_CALENDAR_STEPS, OPEN))
        for missed in (steps - 1, steps, steps + 1, 3 * steps + 50)
    ],
)
def test_long_outage_is_decided_in_several_passes(
    mode: str, made_up: int, missed: int, calendars: dict[str, Any]
) -> None:
    policy = {"mode": mode, "window": "24h"}
    planning = FakePlanning(definition({"every": "1s"}, catch_up=policy, **calendars))
    now = after(missed) + MISSED_AFTER + timedelta(milliseconds=500)

    planning.plan_until_horizon(now, until=now)

    late = [moment for moment in planning.times if now - moment > MISSED_AFTER]
    assert late == [after(k) for k in range(missed - made_up + 1, missed + 1)]
    assert planning.skipped_count == missed - made_up
    assert len(planning.times) == made_up + 60


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(("steps", "calendars"), [(MAX_STEPS, {}), (MAX_CALENDAR_STEPS, OPEN)])
def test_one_pass_examines_a_bounded_number_of_times(steps: int, calendars: dict[str, Any]) -> None:
    planning = FakePlanning(definition({"every": "1s"}, catch_up={"mode": "none"}, **calendars))
    late = after(2 * MAX_STEPS)

    planning.run_pass(late, late)

    assert planning.skipped_count == steps


def test_catch_up_ends_at_the_end_of_the_schedule() -> None:
    policy = {"mode": "one"}
    planning = FakePlanning(
        definition({"every": "1m", "end": "2026-11-20T09:05:00Z"}, catch_up=policy)
    )

    planning.plan_until_horizon(after(1800))

    assert planning.times == minutes(5)
    assert planning.skipped_count == 4
    assert planning.next_at is None


@pytest.mark.requirement("S06")
def test_catch_up_stages_at_most_the_remaining_times() -> None:
    policy = {"mode": "all"}
    planning = FakePlanning(definition({"every": "1m", "times": 2}, catch_up=policy))

    planning.plan_until_horizon(OUTAGE)

    assert planning.times == minutes(1, 2)
    assert planning.next_at is None


@pytest.mark.parametrize("mode", ["none", "one", "all"])
def test_recurrence_from_completion_has_one_run_after_a_long_wait(mode: str) -> None:
    gentle = definition({"every": "1s", "from": "completion"}, catch_up={"mode": mode})
    planning = FakePlanning(gentle)

    planning.run_pass(NINE + seconds(7 * 3600), NINE + seconds(7 * 3600) + HORIZON)

    assert (planning.times, planning.skipped) == ([NINE + seconds(1)], [])


def test_recurrence_from_completion_expires_one_run_and_stages_the_next() -> None:
    gentle = definition({"every": "1s", "from": "completion"}, expires_after="30s")
    planning, late = FakePlanning(gentle), NINE + seconds(7 * 3600)

    planning.run_pass(late, late + HORIZON)
    planning.run_pass(late, late + HORIZON)

    assert [(skip.key.scheduled_for, skip.count) for skip in planning.skipped] == [
        (NINE + seconds(1), 1)
    ]
    assert planning.times == [late]
