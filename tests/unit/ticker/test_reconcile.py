"""What became of runs decides what comes next: after completion, until success, stops."""

from datetime import datetime
from typing import Any

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
COMPLETION = {**EVERY, "from": "completion"}
SUCCESS = {**EVERY, "until": "success"}


def ticking_with(when: dict[str, Any], **policies: Any) -> FakeTicker:
    ticking = FakeTicker(NINE)
    ticking.put(when, **policies)
    return ticking


def run(ticking: FakeTicker, moment: datetime, seconds: float, state: RunState) -> None:
    """It takes so long and ends so; a ticker hears of it."""
    ticking.claim(moment, started=True)
    ticking.wait(seconds).stage_all()
    ticking.complete(moment, state)
    ticking.reconcile()


@pytest.mark.parametrize("when", [COMPLETION, SUCCESS])
def test_only_one_run_is_staged_and_the_next_waits_for_its_end(when: dict[str, Any]) -> None:
    ticking = ticking_with(when)

    ticking.claim(NINE, started=True)
    ticking.wait(3600).stage_all().reconcile()

    assert ticking.record.awaited_run == NINE
    assert sorted(key.scheduled_for for key in ticking.rows) == [NINE]


@pytest.mark.requirement("ASK-17")
@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD, RunState.EXPIRED])
def test_from_completion_the_next_run_is_so_long_after_the_end_however_it_ended(
    state: RunState,
) -> None:
    ticking = ticking_with(COMPLETION)

    run(ticking, NINE, 7, state)

    assert (ticking.staged_times, ticking.record.awaited_run) == ([after(37)], after(37))


def test_from_completion_a_long_run_misses_nothing() -> None:
    ticking = ticking_with(COMPLETION)

    run(ticking, NINE, 3600, RunState.SUCCEEDED)

    assert ticking.staged_times == [after(3630)]
    assert ticking.skipped_counts == {}


def test_from_completion_the_end_counts_and_not_when_it_was_heard_of() -> None:
    ticking = ticking_with(COMPLETION)
    ticking.claim(NINE, started=True)
    ticking.complete(NINE)

    ticking.wait(20).reconcile()

    assert ticking.staged_times == [after(30)]


@pytest.mark.requirement("S06")
def test_from_completion_times_ends_it() -> None:
    ticking = ticking_with({**COMPLETION, "times": 2})

    run(ticking, NINE, 5, RunState.SUCCEEDED)
    run(ticking.wait(30), after(35), 5, RunState.SUCCEEDED)

    assert ticking.record.state is ScheduleState.COMPLETED
    assert (ticking.staged_times, ticking.record.next_at) == ([], None)


@pytest.mark.requirement("S07")
def test_from_completion_nothing_comes_after_the_end() -> None:
    ticking = ticking_with({**COMPLETION, "end": "2026-11-20T09:00:40Z"})

    run(ticking, NINE, 11, RunState.SUCCEEDED)

    assert (ticking.staged_times, ticking.record.state) == ([], ScheduleState.COMPLETED)


def test_until_success_the_first_success_is_the_last_run() -> None:
    ticking = ticking_with(SUCCESS)
    run(ticking, NINE, 5, RunState.DEAD)
    again = list(ticking.staged_times)

    run(ticking.wait(25), after(30), 5, RunState.SUCCEEDED)

    assert again == [after(30)]
    assert (ticking.staged_times, ticking.record.state) == ([], ScheduleState.COMPLETED)


def test_until_success_keeps_to_the_timetable_and_passes_over_what_a_run_took() -> None:
    ticking = ticking_with(SUCCESS, catch_up={"mode": "none"})

    run(ticking, NINE, 100, RunState.DEAD)

    assert ticking.staged_times[0] == after(60)
    assert ticking.skipped_counts == {after(30): 1}


@pytest.mark.parametrize("verb", ["schedule.pause", "schedule.cancel"])
def test_a_success_while_halted_is_not_forgotten(verb: str) -> None:
    ticking = ticking_with(SUCCESS)
    ticking.claim(NINE, started=True)
    ticking.wait(1).send(verb)

    ticking.complete(NINE)
    ticking.reconcile()

    cancelled = verb == "schedule.cancel"
    expected = ScheduleState.CANCELLED if cancelled else ScheduleState.COMPLETED
    assert (ticking.record.state, ticking.record.next_at) == (expected, None)


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("change_at", [40, 400])
def test_a_success_in_a_pause_that_holds_a_change_back_ends_the_version_it_was_of(
    change_at: float,
) -> None:
    ticking = ticking_with(SUCCESS)
    ticking.claim(NINE, started=True)
    ticking.send("schedule.patch", set={"priority": 9}, effective_at=after(change_at))
    ticking.wait(1).send("schedule.pause")
    ticking.complete(NINE)
    ticking.reconcile()
    paused = ticking.record.state

    ticking.wait(100).send("schedule.resume")
    ticking.reconcile()
    for _ in range(40):
        ticking.wait(10).stage_all().run_due()
        ticking.reconcile()

    assert paused is ScheduleState.PAUSED
    ran = ticking.times_in(RunState.SUCCEEDED)
    assert (ran[0], len(ran)) == (NINE, 2)
    assert min(ran[1:]) >= after(change_at)


@pytest.mark.requirement("S06")
def test_a_success_while_another_run_is_held_completes_the_schedule_once_that_is_resolved() -> None:
    ticking = ticking_with(SUCCESS, on_unknown="block")
    ticking.claim(NINE, started=True)
    ticking.wait(1).send("schedule.trigger")
    ticking.claim(after(1), started=True)
    ticking.complete(after(1), RunState.UNRESOLVED)
    ticking.reconcile()

    ticking.complete(NINE)
    ticking.reconcile()
    held = ticking.record.state
    ticking.wait(100).send("run.resolve", run_id=str(RunKey(after(1), ID)), **{"as": "succeeded"})
    ticking.reconcile()

    assert (held, ticking.record.state) == (ScheduleState.BLOCKED, ScheduleState.COMPLETED)
    assert ticking.staged_times == []


def test_a_run_that_ends_while_its_schedule_is_paused_starts_nothing_and_resume_goes_on() -> None:
    ticking = ticking_with(COMPLETION)
    ticking.claim(NINE, started=True)
    ticking.wait(1).send("schedule.pause")
    ticking.wait(9).complete(NINE)
    ticking.reconcile()
    paused = (ticking.record.state, ticking.staged_times)

    ticking.wait(1).send("schedule.resume")

    assert paused == (ScheduleState.PAUSED, [])
    assert ticking.staged_times == [after(40)]


def fail(ticking: FakeTicker, times: int, *, first: int = 0) -> None:
    for k in range(first, first + times):
        run(ticking, after(30 * k), 1, RunState.DEAD)
        ticking.wait(29).stage_all()


def test_so_many_failures_in_a_row_pause_the_schedule_and_say_so() -> None:
    ticking = ticking_with(EVERY, pause_after_failures=3)

    fail(ticking, 2)
    before = ticking.record.state
    fail(ticking, 1, first=2)

    assert before is ScheduleState.ACTIVE
    assert ticking.record.state is ScheduleState.PAUSED
    assert ticking.record.reason == "3 runs failed in a row"
    assert (ticking.staged_times, ticking.record.next_at) == ([], None)
    assert ticking.rows[RunKey(after(90), ID)].reason == Reason.PAUSED


def test_a_success_ends_the_row_and_what_is_no_outcome_does_not() -> None:
    ticking = ticking_with(EVERY, pause_after_failures=3)
    fail(ticking, 2)
    run(ticking, after(60), 1, RunState.EXPIRED)
    still = ticking.record.consecutive_failures
    run(ticking.wait(29), after(90), 1, RunState.SUCCEEDED)

    assert (still, ticking.record.consecutive_failures) == (2, 0)


def test_resumed_failures_are_counted_afresh() -> None:
    ticking = ticking_with(EVERY, pause_after_failures=2)
    fail(ticking, 2)

    ticking.send("schedule.resume")
    fail(ticking, 1, first=2)
    one_more = ticking.record.state
    fail(ticking, 1, first=3)

    assert (one_more, ticking.record.state) == (ScheduleState.ACTIVE, ScheduleState.PAUSED)


def test_heard_of_twice_an_end_counts_once() -> None:
    ticking = ticking_with(EVERY, pause_after_failures=2)
    run(ticking, NINE, 1, RunState.DEAD)

    ticking.reconcile().reconcile()

    assert (ticking.record.consecutive_failures, ticking.record.state) == (1, ScheduleState.ACTIVE)


def test_ends_are_counted_in_the_order_of_their_instants_and_not_as_they_came() -> None:
    ticking = ticking_with(EVERY, pause_after_failures=2)
    ticking.claim(NINE, started=True)
    ticking.claim(after(30), started=True)
    ticking.complete(after(30), RunState.DEAD)
    ticking.complete(NINE, RunState.SUCCEEDED)
    ticking.reconcile()

    assert ticking.record.consecutive_failures == 1
