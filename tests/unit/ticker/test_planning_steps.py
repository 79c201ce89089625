"""Planning steps: bounded, in order and without a repeated run."""

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
def test_schedule_that_is_not_active_requires_no_run() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    for state in set(ScheduleState) - {ScheduleState.ACTIVE}:
        stopped = ticker.record._replace(state=state, next_at=after(90))

        step = planning.plan_schedule(stopped, after(300), after(384))

        assert (step.to_stage, step.skipped) == ([], [])
        assert step.record.state is state


@pytest.mark.requirement("S45")
def test_schedule_beyond_the_horizon_is_not_planned() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "1h", "start": "2026-11-20T10:00:00Z"})

    step = planning.plan_if_due(ticker.record, NINE, NINE + HORIZON)

    assert (step.to_stage, step.record) == ([], ticker.record)


@pytest.mark.requirement("S53")
def test_pass_plans_a_bounded_number_of_runs_and_the_next_pass_continues() -> None:
    when = {"every": "1s", "start": "2026-11-20T09:00:00Z"}
    version = Version.create(ID, 1, tenant=TENANT, definition=definition(when), at=NINE)
    record = ScheduleRecord(version, ScheduleState.ACTIVE, after(-1), NINE, next_at=NINE)

    first = planning.plan_schedule(record, NINE, after(150))
    second = planning.plan_schedule(first.record, NINE, after(150))

    assert len(first.to_stage) == MAX_RUNS
    assert [run.key.scheduled_for for run in second.to_stage] == [
        after(seconds) for seconds in range(MAX_RUNS, 151)
    ]


@pytest.mark.requirement("S28")
def test_pending_version_is_active_only_after_the_last_pass_of_the_old_version() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "1s", "start": "2026-11-20T09:00:00Z"}, catch_up={"mode": "all"})
    ticker.run_due()
    ticker.send("schedule.patch", set={"priority": 9}, effective_at=after(400))

    ticker.wait(450).stage_all()

    versions = {row.version for k, row in ticker.rows.items() if k.scheduled_for < after(400)}
    assert versions == {1}
    assert ticker.version_statuses[2][0] is VersionStatus.ACTIVE
    assert {row.version for key, row in ticker.rows.items() if key.scheduled_for >= after(400)} == {
        2
    }


@pytest.mark.requirement("S12")
def test_schedule_with_an_invalid_time_zone_is_errored_with_the_reason() -> None:
    when = {"cron": "* * * * *", "timezone": "Nowhere/Gone"}
    version = Version.create(ID, 1, tenant=TENANT, definition=definition(when), at=NINE)
    record = ScheduleRecord(version, ScheduleState.ACTIVE, NINE, NINE, next_at=after(60))

    step = planning.plan_schedule(record, after(60), after(120))

    assert (step.record.state, step.record.next_at) == (ScheduleState.ERRORED, None)
    assert "Nowhere/Gone" in (step.record.reason or "")


@pytest.mark.requirement("S29")
@pytest.mark.parametrize("late", [61, 600])
def test_late_activation_records_its_delay(late: float) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.send("schedule.patch", set={"priority": 9}, effective_at=after(100))

    ticker.wait(100 + late).stage_all()

    status, reason = ticker.version_statuses[2]
    assert status is VersionStatus.ACTIVE
    assert reason is not None
    assert "late" in reason


def test_time_of_two_rules_is_one_run() -> None:
    ticker = FakeTicker(NINE)
    start = "2026-11-20T09:00:00Z"
    rules = [{"every": "20s", "start": start}, {"every": "30s", "start": start}, {"at": start}]
    ticker.put({"any_of": rules})

    ticker.run_due()
    ticker.wait(60).stage_all().run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [after(k) for k in (0, 20, 30, 40, 60)]


@pytest.mark.requirement("S28")
def test_short_pause_before_an_activation_loses_no_time_of_the_old_version() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.run_due()
    ticker.put({"every": "20s"}, effective_at=after(70), expected_version="any")

    ticker.wait(5).send("schedule.pause")
    ticker.wait(5).send("schedule.resume")
    for _ in range(12):
        ticker.wait(10).stage_all().run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [after(k) for k in (0, 30, 60, 90, 110, 130)]


@pytest.mark.requirement("S30")
def test_version_is_in_force_from_its_effective_time_and_not_from_its_planning() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.send("schedule.patch", set={"priority": 9}, effective_at=after(20))
    seen = []

    for _ in range(4):
        seen.append((ticker.record.version.number, ticker.version_statuses[2][0]))
        ticker.wait(10).stage_all()

    pending, active = (1, VersionStatus.PENDING), (2, VersionStatus.ACTIVE)
    assert seen == [pending, pending, active, active]
