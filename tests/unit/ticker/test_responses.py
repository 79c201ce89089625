"""When a schedule runs next, as answers tell it: never an instant that will not run."""

from datetime import datetime
from typing import Any

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
TWICE = {**EVERY, "times": 2}


def put(when: dict[str, Any], **policies: Any) -> tuple[FakeTicker, list[datetime]]:
    ticking = FakeTicker(NINE)
    return ticking, told(ticking.put(when, **policies))


def told(answer: object) -> list[datetime]:
    assert isinstance(answer, ScheduleResponse)
    return answer.next_at


@pytest.mark.requirement("S06")
def test_only_so_many_instants_are_announced_as_there_will_be_runs() -> None:
    ticking, created = put(TWICE)

    patched = told(ticking.wait(1).send("schedule.patch", set={"priority": 9}))
    ticking.send("schedule.pause")
    resumed = told(ticking.wait(1).send("schedule.resume"))
    ticking.run_due()
    later = told(ticking.wait(31).send("schedule.patch", set={"priority": 8}))

    assert created == resumed == [NINE, after(30)]
    assert patched == [after(30)]
    assert later == []


@pytest.mark.requirement("S06")
def test_what_has_run_so_many_times_is_completed_and_stays_so_through_a_change() -> None:
    ticking, _ = put(TWICE)
    for _ in range(10):
        ticking.run_due()
        ticking.wait(10).stage_all()

    answer = ticking.send("schedule.patch", set={"priority": 9})

    assert (answer.state, told(answer)) == ("completed", [])
    assert (ticking.record.state, ticking.record.next_at) == (ScheduleState.COMPLETED, None)


@pytest.mark.requirement("S06")
def test_a_change_for_later_leaves_as_many_runs_as_there_were() -> None:
    ticking, _ = put({**EVERY, "times": 3})

    deferred = ticking.wait(1).send("schedule.patch", set={"priority": 9}, effective_at=after(45))
    for _ in range(20):
        ticking.run_due()
        ticking.wait(10).stage_all()

    assert told(deferred) == [after(30), after(60)]
    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]


@pytest.mark.requirement("S28")
def test_until_its_time_the_instants_are_of_the_old_version_and_then_of_the_new() -> None:
    ticking, _ = put(EVERY)

    deferred = ticking.put({"every": "7s"}, effective_at=after(40), expected_version="any")

    assert told(deferred) == [after(30), after(47), after(54)]


def test_what_was_taken_out_is_not_announced() -> None:
    ticking, _ = put(EVERY)

    answer = ticking.send("schedule.skip", at=after(120))
    ticking.send("schedule.skip", at=after(30))
    ticking.wait(1)

    assert told(answer) == [after(30), after(60), after(90)]
    assert told(ticking.wait(61).send("schedule.trigger")) == [after(90), after(150), after(180)]


@pytest.mark.parametrize("rule", [{"from": "completion"}, {"until": "success"}])
def test_what_comes_after_a_run_that_is_awaited_nobody_knows(rule: dict[str, str]) -> None:
    ticking, _ = put({**EVERY, **rule})

    assert told(ticking.wait(1).send("schedule.trigger")) == []


def test_what_a_resumed_schedule_has_missed_is_not_announced() -> None:
    ticking, _ = put(EVERY, catch_up={"mode": "none"})
    ticking.send("schedule.pause")

    resumed = told(ticking.wait(300).send("schedule.resume"))

    assert resumed[0] >= after(240)


def test_what_owes_nothing_from_the_start_is_completed() -> None:
    ticking, created = put({**EVERY, "end": "2026-11-20T08:00:00Z", "start": None})

    assert (created, ticking.record.state) == ([], ScheduleState.COMPLETED)
