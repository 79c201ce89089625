"""Bounded computations of planned times: they end anywhere and continue where they ended."""

from collections.abc import Callable
from datetime import timedelta

import orjson
import pytest
from tests.fakes.schedules import ID, definition
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import TooExpensive
from harebell.contract.policy import CatchUp
from harebell.contract.schedule import Definition
from harebell.domain.planned_times import PlannedSchedule
from harebell.domain.run_states import ScheduleState
from harebell.domain.timetables import DueTimesCache, Timetables
from harebell.intake.queries.forecast import HOUR, ForecastCounts, ForecastHours

FREEZE = {
    "name": "freeze",
    "version": 1,
    "weekly": [{"weekdays": ["fri"], "from": "09:10", "to": "09:12"}],
}
PER_MINUTE = definition(
    {"cron": "* * * * *"}, calendars={"exclude": ["freeze"]}, pinned_calendars=[FREEZE]
)
JITTERED = definition({"cron": "* * * * *", "jitter": "10s"})
HOURS = ForecastHours(NINE, 2)


def allow(searches: int) -> Callable[[], None]:
    """Return a function that raises after this number of calls, and again after as many."""
    left = searches

    def spend() -> None:
        nonlocal left
        if left == 0:
            left = searches
            raise TooExpensive("The test allows no further search.")
        left -= 1

    return spend


def planned(policy: Definition, spend: Callable[[], None]) -> PlannedSchedule:
    text = orjson.dumps(policy.to_json()).decode()
    timetable = Timetables(spend=spend).create(ID, text, since=NINE, anchor=NINE)
    assert timetable is not None
    return PlannedSchedule((timetable,), ScheduleState.ACTIVE, NINE, after(60))


def count(counts: ForecastCounts, schedule: PlannedSchedule, cache: DueTimesCache) -> None:
    counts.add_schedule(schedule, None, tenant="acme", now=NINE, cache=cache)


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("policy", [PER_MINUTE, JITTERED], ids=["calendar", "jitter"])
def test_computation_that_ended_continues_and_counts_each_time_once(policy: Definition) -> None:
    free, bounded = ForecastCounts(hours=HOURS), ForecastCounts(hours=HOURS)
    count(free, planned(policy, lambda: None), DueTimesCache())
    spend = allow(50)
    schedule, cache = planned(policy, spend), DueTimesCache(spend=spend)
    ended = 0

    while ended < 100:
        try:
            count(bounded, schedule, cache)
            break
        except TooExpensive:
            assert bounded.runs == [0, 0]  # no part of a schedule counts
            ended += 1

    assert ended > 1
    assert bounded.runs == free.runs
    assert sum(free.runs) > 100
    assert bounded.excluded == free.excluded


@pytest.mark.requirement("P6")
def test_each_search_with_calendars_is_bounded_also_for_late_runs() -> None:
    """The planner searches the times of a long outage, without the cache."""
    spend, now = allow(20), NINE + timedelta(minutes=50)
    policy = PER_MINUTE.model_copy(update={"catch_up": CatchUp(mode="all", window=HOUR)})
    late = planned(policy, spend)._replace(next_at=NINE)

    with pytest.raises(TooExpensive):
        ForecastCounts(hours=HOURS).add_schedule(
            late, None, tenant="acme", now=now, cache=DueTimesCache()
        )
