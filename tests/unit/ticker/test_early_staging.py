"""The first runs of a change that waits are staged in time, and yet nobody is bound by them."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import HORIZON, ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
QUICK = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
RULES = [
    {"every": "1s", "start": "2026-11-20T09:00:00Z"},
    QUICK,
    {"cron": "*/7 * * * * *"},
    {**QUICK, "times": 3},
    {"at": "2026-11-20T09:03:20Z"},
]


def later(seconds: float = 200, when: dict[str, Any] | None = None) -> FakeTicker:
    """Another timetable from then on; each pass is on time."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.put(when or QUICK, effective_at=after(seconds), expected_version="any", priority=9)
    return ticking


def carry_on(ticking: FakeTicker, until: float) -> FakeTicker:
    while ticking.now < after(until):
        ticking.run_due()
        ticking.wait(1).stage_all()
    return ticking


def version_of(ticking: FakeTicker, seconds: float) -> int:
    return ticking.rows[RunKey(after(seconds), ID)].version


@pytest.mark.requirement("S28")
def test_runs_at_the_time_of_a_change_and_behind_it_are_staged_before_it() -> None:
    ticking = carry_on(later(), 150)

    assert ticking.staged_times == [after(k) for k in (150, 180, 200, 220)]
    assert [version_of(ticking, k) for k in (180, 200, 220)] == [1, 2, 2]
    assert (ticking.record.version.number, ticking.version_statuses[2][0]) == (
        1,
        VersionStatus.PENDING,
    )


@pytest.mark.requirement("S28")
@given(when=st.sampled_from(RULES), at=st.integers(85_000, 260_000))
@settings(deadline=None, max_examples=40)
def test_every_run_of_a_change_is_staged_a_horizon_ahead(when: dict[str, Any], at: int) -> None:
    once = when.get("at")  # one before the change would be refused
    assume(once is None or datetime.fromisoformat(once) >= NINE + timedelta(milliseconds=at))
    ticking = later(at / 1000, when)
    seen: dict[Any, Any] = {}

    while ticking.now < after(300):
        ticking.run_due()
        ticking.wait(1).stage_all()
        for moment in ticking.staged_times:
            seen.setdefault(moment, ticking.now)

    first = [moment for moment in seen if moment >= NINE + timedelta(milliseconds=at)][:50]
    assert all(moment - seen[moment] >= HORIZON - timedelta(seconds=1) for moment in first)
    assert {version for m in first if (version := ticking.rows[RunKey(m, ID)].version)} <= {2}


@pytest.mark.requirement("S06")
def test_what_was_staged_ahead_counts_towards_the_times_of_the_new_version() -> None:
    ticking = carry_on(later(when={**QUICK, "times": 3}), 400)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment >= after(200)]
    assert ran == [after(200), after(220), after(240)]
    assert ticking.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S28")
def test_what_is_called_off_takes_its_runs_back_and_the_old_timetable_goes_on() -> None:
    ticking = carry_on(later(), 150)

    ticking.put(EVERY, expected_version="any")
    carry_on(ticking, 281)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment > after(150)]
    assert ran == [after(k) for k in (180, 210, 240, 270)]
    assert ticking.version_statuses[2] == (VersionStatus.SUPERSEDED, "overtaken by version 3")


@pytest.mark.requirement("S28")
def test_what_is_put_off_takes_its_runs_back_and_the_old_timetable_fills_the_gap() -> None:
    ticking = carry_on(later(), 150)

    ticking.put(QUICK, effective_at=after(220), expected_version="any", priority=8)
    carry_on(ticking, 241)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment > after(150)]
    assert ran == [after(k) for k in (180, 210, 220, 240)]
    assert [version_of(ticking, k) for k in (180, 210, 220)] == [1, 1, 3]


@pytest.mark.requirement("S28")
@pytest.mark.parametrize("verb", ["schedule.pause", "schedule.cancel"])
def test_a_pause_and_a_cancellation_take_back_what_is_staged_ahead(verb: str) -> None:
    ticking = carry_on(later(), 150)

    ticking.send(verb)

    assert ticking.staged_times == []


@pytest.mark.requirement("S28")
def test_resumed_before_a_change_its_runs_are_staged_ahead_again() -> None:
    ticking = carry_on(later(), 150)

    ticking.send("schedule.pause")
    ticking.wait(5).send("schedule.resume")
    carry_on(ticking, 261)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment > after(140)]
    assert ran == [after(k) for k in (150, 180, 200, 220, 240, 260)]


@pytest.mark.requirement("S28")
@pytest.mark.parametrize(
    ("instead", "ran"),
    [
        ({}, {20: 2, 40: 2, 60: 2}),
        ({"when": {"now": True}, "effective_at": after(18)}, {18: 3}),
        ({"when": {"at": "2026-11-20T09:00:30Z"}}, {30: 3}),
    ],
)
def test_what_a_pause_took_back_of_a_change_is_that_changes_alone(
    instead: dict[str, Any], ran: dict[int, int]
) -> None:
    """`instead`: what takes its place in the pause."""
    ticking = FakeTicker(NINE)
    ticking.put({"at": "2026-11-20T09:00:50Z"})
    ticking.put(QUICK, effective_at=after(15), expected_version="any")
    ahead = list(ticking.staged_times)

    ticking.wait(5).send("schedule.pause")
    if instead:
        ticking.put(**instead, expected_version="any")
    ticking.wait(5).send("schedule.resume")
    carry_on(ticking, 61)

    assert ahead == [after(20), after(40), after(60), after(80)]
    succeeded = ticking.times_in(RunState.SUCCEEDED)
    assert succeeded == [after(second) for second in ran]
    assert {second: version_of(ticking, second) for second in ran} == ran


def test_one_run_of_a_change_is_taken_out_before_its_time() -> None:
    ticking = carry_on(later(when={**QUICK, "times": 2}), 150)

    ticking.send("schedule.skip", at=after(200))
    carry_on(ticking, 400)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment >= after(200)]
    assert ran == [after(220), after(240)]


@pytest.mark.requirement("S07")
def test_a_completed_schedule_is_active_again_when_its_change_takes_effect() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"now": True})
    ticking.put(QUICK, effective_at=after(50), expected_version="any")
    ahead = list(ticking.staged_times)

    carry_on(ticking, 81)

    assert ahead == [NINE, after(60), after(80)]
    assert ticking.record.state is ScheduleState.ACTIVE
    assert ticking.times_in(RunState.SUCCEEDED) == ahead


def test_a_run_that_has_ended_before_anybody_knew_of_the_change_is_still_concluded() -> None:
    ticking = later(when={"every": "20s", "from": "completion", "start": "2026-11-20T09:03:20Z"})
    carry_on(ticking, 199).wait(1)
    ticking.claim(after(200), started=True)
    ticking.complete(after(200))

    ticking.reconcile().stage_all()
    ticking.reconcile()

    assert ticking.staged_times == [after(220)]
