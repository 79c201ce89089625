"""The bounds of a planning pass: times, end, expiry and jitter."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.schedules import ID, FakePlanning, definition, seconds, skipped_range
from tests.fakes.tickets import NINE, after

from harebell.contract.ids import RunKey
from harebell.domain.planner import MAX_RUNS, StartDelays, expiry_time
from harebell.domain.run_states import Reason


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("when", [{"every": "10s"}, {"cron": "*/10 * * * * *"}])
def test_plan_returns_exactly_the_runs_that_times_allows(when: dict[str, Any]) -> None:
    planning = FakePlanning(definition({**when, "times": 3}))

    planning.plan_until_horizon(NINE, until=after(3600))

    assert len(planning.runs) == 3
    assert planning.next_at is None


@pytest.mark.requirement("S06")
def test_plan_completes_a_schedule_with_its_last_run() -> None:
    planning = FakePlanning(definition({"every": "10s", "times": 2}))

    planning.plan_until_horizon(NINE, until=after(20))

    assert planning.next_at is None


@pytest.mark.requirement("S06")
def test_plan_ends_at_the_earlier_of_times_and_end() -> None:
    planning = FakePlanning(definition({"every": "10s", "times": 9, "end": "2026-11-20T09:00:30Z"}))

    planning.plan_until_horizon(NINE, until=after(3600))

    assert planning.times == [after(10), after(20), after(30)]


@pytest.mark.requirement("S06")
def test_missed_times_do_not_count_towards_times() -> None:
    planning = FakePlanning(definition({"every": "10s", "times": 3}, catch_up={"mode": "none"}))

    planning.plan_until_horizon(after(1000))

    assert planning.times == [after(940), after(950), after(960)]
    assert planning.skipped_count == 93


@pytest.mark.requirement("S06")
def test_expired_times_do_not_count_towards_times() -> None:
    planning = FakePlanning(definition({"every": "10s", "times": 3}, expires_after="5s"))

    planning.plan_until_horizon(after(55))

    assert planning.times == [after(60), after(70), after(80)]
    assert planning.skipped == [skipped_range(after(10), after(50), 5, Reason.EXPIRED)]


@pytest.mark.requirement("S53")
def test_pass_is_bounded_and_the_next_pass_continues() -> None:
    planning = FakePlanning(definition({"every": "1s"}))

    planning.run_pass(NINE, after(250))
    first = list(planning.times)
    planning.plan_until_horizon(NINE, until=after(250))

    assert first == [after(k) for k in range(1, MAX_RUNS + 1)]
    assert planning.times == [after(k) for k in range(1, 251)]


def test_pass_without_a_required_run_changes_nothing() -> None:
    planning = FakePlanning(definition({"every": "1h"}))
    cursor, next_at = planning.planned_until, planning.next_at

    planning.plan_until_horizon(NINE)

    assert (planning.runs, planning.planned_until, planning.next_at) == ([], cursor, next_at)


def test_jitter_delays_the_due_time_and_keeps_the_key() -> None:
    plain = FakePlanning(definition({"every": "10s"})).plan_until_horizon(NINE)
    jittered = FakePlanning(definition({"every": "10s", "jitter": "30s"})).plan_until_horizon(NINE)

    assert jittered.times == plain.times
    delays = [run.due_at - run.scheduled_for for run in jittered.runs]
    assert all(timedelta(0) <= delay < seconds(30) for delay in delays)
    assert len(set(delays)) > 1


def test_jitter_is_constant_per_run_and_differs_between_schedules() -> None:
    delays = StartDelays.of(definition({"every": "10s", "jitter": "1h"}))

    ones = {delays.due_time(RunKey(NINE, ID)) for _ in range(3)}
    others = delays.due_time(RunKey(NINE, type(ID)(int=ID.int + 1)))

    assert len(ones) == 1
    assert others not in ones


def test_jitter_spreads_a_thousand_runs_evenly_over_its_whole_range() -> None:
    jittered = StartDelays.of(definition({"every": "10s", "jitter": "100s"}))

    keys = [RunKey(NINE, type(ID)(int=ID.int + number)) for number in range(1_000)]
    delays = [(jittered.due_time(key) - NINE).total_seconds() for key in keys]

    tenths = Counter(int(delay / 10) for delay in delays)
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) < 150


def test_run_without_jitter_is_due_at_its_scheduled_time() -> None:
    assert StartDelays.of(definition({"now": True})).due_time(RunKey(NINE, ID)) == NINE


def test_expiry_counts_from_the_scheduled_time() -> None:
    policies = definition({"now": True, "jitter": "20s"}, expires_after="30s")

    assert expiry_time(policies, RunKey(NINE, ID)) == after(30)


@pytest.mark.parametrize(("late", "runs"), [(29.999, 1), (30, 0), (31, 0)])
def test_expired_one_shot_is_skipped_with_its_reason(late: float, runs: int) -> None:
    planning = FakePlanning(definition({"now": True}, expires_after="30s"))

    planning.plan_until_horizon(after(late))

    assert len(planning.runs) == runs
    assert [each.reason for each in planning.skipped] == [Reason.EXPIRED] * (1 - runs)
    assert planning.next_at is None
