"""A pass plans for so long and no longer; what it leaves is due for the next."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.fakes.schedules import HORIZON
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE

from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.stager import PLANNING_BUDGET, StagingPass, within_budget
from harebell.ticker.store.save import SaveResult

SPENT = -1.0  # seconds: before it has begun


def entries(count: int) -> list[ScheduleRecord]:
    """All due within the horizon."""
    ticking = FakeTicker(NINE)
    ticking.put({"at": "2026-11-20T10:00:00Z"})
    kept = ticking.record
    return [
        kept._replace(version=replace(kept.version, schedule_id=UUID(int=number)))
        for number in range(count)
    ]


@pytest.mark.requirement("S53")
def test_what_a_spent_budget_leaves_is_due_for_the_next_pass_until_nothing_is() -> None:
    now = NINE.replace(hour=10)
    due, passes, owed = entries(5), 0, []
    while due:
        made = within_budget(due, now, now + HORIZON, SPENT)
        owed += [run.key.schedule_id for each in made for run in each.to_stage]
        due, passes = due[len(made) :], passes + 1

    assert passes == 5
    assert owed == [UUID(int=number) for number in range(5)]


@pytest.mark.requirement("S53")
def test_what_fits_the_budget_is_one_pass() -> None:
    now = NINE.replace(hour=10)

    assert len(within_budget(entries(5), now, now + HORIZON, PLANNING_BUDGET)) == 5


@pytest.mark.requirement("S53")
@pytest.mark.parametrize(
    ("full", "left", "end"),
    [(False, 0, "drained"), (True, 0, "full"), (True, 3, "over_budget"), (False, 3, "over_budget")],
)
def test_a_pass_says_how_it_ended(full: bool, left: int, end: str) -> None:  # noqa: FBT001
    assert StagingPass(SaveResult([], [], []), full, left).end == end
