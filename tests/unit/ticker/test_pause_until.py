"""A pause with an end: it is over by itself, and catch-up decides about what lay in it."""

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.commands import ScheduleResume
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


def paused(seconds: float, **policies: object) -> FakeTicker:
    """From ten past nine's start on, until so many seconds after nine."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, **policies)
    ticking.run_due()
    ticking.wait(10).send("schedule.pause", until=after(seconds))
    return ticking


def carry_on(ticking: FakeTicker, until: float) -> None:
    while ticking.now < after(until):
        ticking.wait(5).stage_all()
        ticking.run_due()


@pytest.mark.requirement("S14")
def test_paused_until_then_nothing_runs_before_and_it_goes_on_by_itself() -> None:
    ticking = paused(200)

    carry_on(ticking, 195)
    before = (ticking.record.state, ticking.times_in(RunState.SUCCEEDED), ticking.staged_times)
    carry_on(ticking, 250)

    assert before == (ScheduleState.PAUSED, [NINE], [])
    assert ticking.record.state is ScheduleState.ACTIVE
    assert ticking.record.paused_until is None
    assert ticking.times_in(RunState.SUCCEEDED)[-2:] == [after(210), after(240)]


@pytest.mark.requirement("S14", "ASK-6")
@pytest.mark.parametrize(
    ("mode", "made_up"), [("none", []), ("one", [120]), ("all", [30, 60, 90, 120])]
)
def test_the_catch_up_policy_decides_about_the_gap_of_such_a_pause(
    mode: str, made_up: list[float]
) -> None:
    ticking = paused(200, catch_up={"mode": mode})

    carry_on(ticking, 300)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if NINE < moment <= after(139)]
    assert ran == [after(seconds) for seconds in made_up]
    assert sum(ticking.skipped_counts.values()) == 4 - len(made_up)


@pytest.mark.requirement("S14")
def test_within_a_minute_of_its_end_nothing_counts_as_missed() -> None:
    ticking = paused(100, catch_up={"mode": "none"})

    carry_on(ticking, 150)

    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, *(after(30 * k) for k in range(2, 6))]


def test_a_pause_that_has_an_end_can_be_ended_sooner() -> None:
    ticking = paused(600)

    answer = ticking.wait(5).send("schedule.resume")
    carry_on(ticking, 70)

    assert answer.state == "active"
    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]


def test_another_pause_gives_another_end_or_none() -> None:
    ticking = paused(100)

    ticking.send("schedule.pause", until=after(200))
    carry_on(ticking, 190)
    longer = ticking.record.state
    ticking.send("schedule.pause")
    carry_on(ticking, 900)

    assert (longer, ticking.record.state) == (ScheduleState.PAUSED, ScheduleState.PAUSED)


def test_a_pause_until_a_time_that_has_passed_is_over_at_once() -> None:
    ticking = paused(5)

    carry_on(ticking, 40)

    assert ticking.record.state is ScheduleState.ACTIVE
    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, after(30)]


def test_a_change_in_a_pause_that_has_an_end_does_not_prevent_the_end() -> None:
    ticking = paused(100)

    ticking.send("schedule.patch", set={"priority": 9})
    carry_on(ticking, 130)

    assert ticking.record.state is ScheduleState.ACTIVE
    assert ticking.times_in(RunState.SUCCEEDED)[-1] == after(120)


def test_a_schedule_whose_end_lies_in_the_pause_is_completed_when_that_is_over() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "end": "2026-11-20T09:01:00Z"}, catch_up={"mode": "none"})
    ticking.send("schedule.pause", until=after(300))

    carry_on(ticking, 400)

    assert ticking.record.state is ScheduleState.COMPLETED
    assert ticking.times_in(RunState.SUCCEEDED) == []


@pytest.mark.requirement("S14")
def test_a_resumed_schedule_waits_for_the_run_that_it_waited_for() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "30s", "from": "completion", "start": "2026-11-20T09:00:00Z"})
    ticking.claim(NINE, started=True)

    ticking.wait(1).send("schedule.pause")
    answer = ticking.wait(300).send("schedule.resume")

    assert isinstance(answer, ScheduleResponse)
    assert (ticking.record.awaited_run, ticking.staged_times) == (NINE, [])


@pytest.mark.requirement("S101")
def test_a_held_schedule_is_not_resumed_but_resolved() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, on_unknown="block")
    ticking.claim(NINE, started=True)
    ticking.complete(NINE, RunState.UNRESOLVED)
    ticking.reconcile()

    with pytest.raises(Exception, match="is held") as refused:
        ticking.send("schedule.resume")

    assert getattr(refused.value, "code", None) == "not_paused"


def test_an_order_names_schedules_in_one_way_only() -> None:
    bodies: list[dict[str, object]] = [
        {},
        {"key": "a", "select": {"tag": "b"}},
        {"select": {}},
    ]
    for body in bodies:
        with pytest.raises(InvalidInput):
            parse(ScheduleResume, body)


def test_a_withdrawn_run_says_that_it_was_the_pause() -> None:
    ticking = paused(200)

    reasons = {row.reason for row in ticking.rows.values() if row.state is RunState.CANCELLED}
    assert reasons == {Reason.PAUSED}
