"""Planning that goes on by itself: bounded, in order, and nothing is owed twice."""

import pytest
from tests.fakes.schedules import HORIZON, ID, definition
from tests.fakes.ticker import TENANT, FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.domain.planner import MAX_RUNS
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.model import planning
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version, VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.mark.requirement("S40")
def test_what_is_paused_held_cancelled_or_over_owes_nothing() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    for state in set(ScheduleState) - {ScheduleState.ACTIVE}:
        stopped = ticking.record._replace(state=state, next_at=after(90))

        made = planning.plan_schedule(stopped, after(300), after(384))

        assert (made.to_stage, made.skipped) == ([], [])
        assert made.record.state is state


@pytest.mark.requirement("S45")
def test_what_lies_beyond_the_horizon_is_not_looked_at() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "1h", "start": "2026-11-20T10:00:00Z"})

    made = planning.plan_if_due(ticking.record, NINE, NINE + HORIZON)

    assert (made.to_stage, made.record) == ([], ticking.record)


@pytest.mark.requirement("S53")
def test_a_pass_takes_so_many_runs_of_one_schedule_and_the_next_pass_goes_on() -> None:
    when = {"every": "1s", "start": "2026-11-20T09:00:00Z"}
    version = Version.create(ID, 1, tenant=TENANT, definition=definition(when), at=NINE)
    entry = ScheduleRecord(version, ScheduleState.ACTIVE, after(-1), NINE, next_at=NINE)

    first = planning.plan_schedule(entry, NINE, after(150))
    second = planning.plan_schedule(first.record, NINE, after(150))

    assert len(first.to_stage) == MAX_RUNS
    assert [run.key.scheduled_for for run in second.to_stage] == [
        after(second_) for second_ in range(MAX_RUNS, 151)
    ]


@pytest.mark.requirement("S28")
def test_a_change_behind_more_than_one_pass_waits_for_the_last_of_them() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "1s", "start": "2026-11-20T09:00:00Z"}, catch_up={"mode": "all"})
    ticking.run_due()
    ticking.send("schedule.patch", set={"priority": 9}, effective_at=after(400))

    ticking.wait(450).stage_all()

    versions = {row.version for k, row in ticking.rows.items() if k.scheduled_for < after(400)}
    assert versions == {1}
    assert ticking.version_statuses[2][0] is VersionStatus.ACTIVE
    assert {
        row.version for key, row in ticking.rows.items() if key.scheduled_for >= after(400)
    } == {2}


@pytest.mark.requirement("S12")
def test_a_schedule_that_cannot_be_computed_is_parked_with_the_reason() -> None:
    when = {"cron": "* * * * *", "timezone": "Nowhere/Gone"}
    version = Version.create(ID, 1, tenant=TENANT, definition=definition(when), at=NINE)
    entry = ScheduleRecord(version, ScheduleState.ACTIVE, NINE, NINE, next_at=after(60))

    made = planning.plan_schedule(entry, after(60), after(120))

    assert (made.record.state, made.record.next_at) == (ScheduleState.ERRORED, None)
    assert "Nowhere/Gone" in (made.record.reason or "")


@pytest.mark.requirement("S29")
@pytest.mark.parametrize("late", [61, 600])
def test_a_change_that_commences_late_says_how_late(late: float) -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.send("schedule.patch", set={"priority": 9}, effective_at=after(100))

    ticking.wait(100 + late).stage_all()

    fate, reason = ticking.version_statuses[2]
    assert fate is VersionStatus.ACTIVE
    assert reason is not None
    assert "late" in reason


def test_one_instant_of_two_rules_is_one_run() -> None:
    ticking = FakeTicker(NINE)
    start = "2026-11-20T09:00:00Z"
    rules = [{"every": "20s", "start": start}, {"every": "30s", "start": start}, {"at": start}]
    ticking.put({"any_of": rules})

    ticking.run_due()
    ticking.wait(60).stage_all().run_due()

    assert ticking.times_in(RunState.SUCCEEDED) == [after(k) for k in (0, 20, 30, 40, 60)]


@pytest.mark.requirement("S28")
def test_a_short_pause_before_a_change_loses_no_instant_of_the_old_version() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.run_due()
    ticking.put({"every": "20s"}, effective_at=after(70), expected_version="any")

    ticking.wait(5).send("schedule.pause")
    ticking.wait(5).send("schedule.resume")
    for _ in range(12):
        ticking.wait(10).stage_all().run_due()

    assert ticking.times_in(RunState.SUCCEEDED) == [after(k) for k in (0, 30, 60, 90, 110, 130)]


@pytest.mark.requirement("S30")
def test_a_change_is_in_force_from_its_time_on_and_not_from_when_it_is_planned() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.send("schedule.patch", set={"priority": 9}, effective_at=after(20))
    seen = []

    for _ in range(4):
        seen.append((ticking.record.version.number, ticking.version_statuses[2][0]))
        ticking.wait(10).stage_all()

    assert seen == [*2 * [(1, VersionStatus.PENDING)], *2 * [(2, VersionStatus.ACTIVE)]]
