"""The planning budget of a staging pass."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from tests.fakes.schedules import HORIZON
from tests.fakes.ticker import FakeTicker, finish
from tests.fakes.tickets import NINE

from harebell.ticker import stager
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.plan_writer import SaveResult
from harebell.ticker.stager import MAX_DEFERRED, DeferredTenants, PlanningBudget, StagingPass

SPENT = -1.0  # seconds


def due_records(count: int) -> list[ScheduleRecord]:
    """Return schedules that are due within the horizon."""
    ticker = FakeTicker(NINE)
    ticker.put({"at": "2026-11-20T10:00:00Z"})
    record = ticker.record
    return [
        record._replace(version=replace(record.version, schedule_id=UUID(int=number)))
        for number in range(count)
    ]


@pytest.mark.requirement("S53")
def test_schedules_beyond_the_planning_budget_stay_due_for_the_next_pass() -> None:
    now = NINE.replace(hour=10)
    due, passes, staged = due_records(5), 0, []
    while due:
        steps = finish(PlanningBudget(seconds=SPENT).plan(due, now, now + HORIZON))
        staged += [run.key.schedule_id for step in steps for run in step.to_stage]
        due, passes = due[len(steps) :], passes + 1

    assert passes == 5
    assert staged == [UUID(int=number) for number in range(5)]


@pytest.mark.requirement("S53")
def test_one_pass_plans_every_schedule_within_the_budget() -> None:
    now = NINE.replace(hour=10)

    steps = finish(PlanningBudget().plan(due_records(5), now, now + HORIZON))

    assert len(steps) == 5


@pytest.mark.requirement("P6")
async def test_planning_lets_other_tasks_of_the_ticker_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stager, "PLANNING_SLICE", SPENT)
    now = NINE.replace(hour=10)
    turns: list[int] = []
    planned = asyncio.create_task(PlanningBudget().plan(due_records(3), now, now + HORIZON))

    while not planned.done():
        turns.append(len(turns))
        await asyncio.sleep(0)

    assert len(planned.result()) == 3
    assert len(turns) > 3


@pytest.mark.requirement("P6")
def test_set_of_deferred_tenants_is_bounded() -> None:
    deferred = DeferredTenants()

    for number in range(MAX_DEFERRED + 1):
        budget = PlanningBudget(seconds=1.0)
        budget.used |= {"few": 0.5, f"tenant-{number}": 0.75}
        deferred.observe(budget)

    assert deferred.tenants == {f"tenant-{MAX_DEFERRED}"}


@pytest.mark.requirement("P6")
def test_tenant_that_uses_little_is_not_deferred_beside_a_deferred_one() -> None:
    deferred = DeferredTenants(frozenset(["costly"]))
    budget = PlanningBudget(seconds=1.0)
    budget.used |= {"few": 0.75, "costly": 0.5}

    deferred.observe(budget)

    assert deferred.tenants == {"costly"}


@pytest.mark.requirement("S53")
@pytest.mark.parametrize(
    ("is_full", "unplanned", "end"),
    [(False, 0, "drained"), (True, 0, "full"), (True, 3, "over_budget"), (False, 3, "over_budget")],
)
def test_staging_pass_reports_its_end(*, is_full: bool, unplanned: int, end: str) -> None:
    assert StagingPass(SaveResult([], [], []), is_full, unplanned).end == end


@pytest.mark.parametrize(
    ("when", "runs"), [({"every": "2s"}, 20), ({"every": "1h"}, 1), ({"every": "30s"}, 2)]
)
def test_frequent_schedule_is_planned_ahead_of_the_horizon(when: dict[str, str], runs: int) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(when)
    record = ticker.record
    assert record.next_at is not None
    now = record.next_at - HORIZON
    before = record.next_at

    ahead = timedelta(seconds=39)
    (step,) = finish(PlanningBudget().plan([record], now, now + HORIZON, ahead=ahead))

    times = [run.key.scheduled_for for run in step.to_stage]
    assert len(times) == runs
    assert times[0] == before
    assert step.record.next_at is not None
    assert step.record.next_at > now + HORIZON + timedelta(seconds=39)


def test_schedule_with_a_pending_version_is_planned_up_to_the_horizon_only() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "2s"})
    ticker.put(
        {"every": "3s"},
        effective_at=(NINE + timedelta(days=1)).isoformat(),
        expected_version="any",
    )
    record = ticker.record
    assert record.next_at is not None
    now = record.next_at - HORIZON

    ahead = timedelta(seconds=39)
    (step,) = finish(PlanningBudget().plan([record], now, now + HORIZON, ahead=ahead))

    assert record.pending
    assert [run.key.scheduled_for for run in step.to_stage] == [record.next_at]
