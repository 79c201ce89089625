"""Pause and resume: nothing runs in between, nothing is lost, nothing is owed twice."""

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticking() -> FakeTicker:
    """Runs staged at nine, and every half minute."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    return ticking


@pytest.mark.requirement("S14")
def test_paused_nothing_staged_is_left_and_nothing_more_is_made(ticking: FakeTicker) -> None:
    answer = ticking.send("schedule.pause")
    ticking.wait(300).stage_all()

    assert (answer.state, ticking.staged_times) == ("paused", [])
    assert ticking.times_in(RunState.CANCELLED) == [NINE, after(30), after(60)]
    assert {row.reason for row in ticking.rows.values()} == {Reason.PAUSED}


@pytest.mark.requirement("S14")
def test_pause_and_resume_within_the_horizon_lose_nothing(ticking: FakeTicker) -> None:
    ticking.run_due()
    ticking.wait(10).send("schedule.pause")

    answer = ticking.wait(5).send("schedule.resume")

    assert isinstance(answer, ScheduleResponse)
    assert answer.next_at == [after(30), after(60), after(90)]
    assert ticking.staged_times == [after(30), after(60), after(90)]
    assert ticking.times_in(RunState.SUCCEEDED) == [NINE]


@pytest.mark.requirement("S14")
def test_pause_and_resume_in_one_transaction_lose_nothing(ticking: FakeTicker) -> None:
    ticking.wait(1).send_all(("schedule.pause", {}), ("schedule.resume", {}))

    assert ticking.staged_times == [NINE, after(30), after(60)]


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(("mode", "made_up"), [("none", 0), ("one", 1), ("all", 8)])
def test_resumed_the_catch_up_policy_decides_about_the_gap(mode: str, made_up: int) -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, catch_up={"mode": mode})
    ticking.run_due()
    ticking.wait(10).send("schedule.pause")

    ticking.wait(300).send("schedule.resume")

    missed = [moment for moment in ticking.staged_times if moment < after(250)]
    assert missed == [after(240 - 30 * k) for k in range(made_up)][::-1]
    assert sum(ticking.skipped_counts.values()) == 8 - made_up


@pytest.mark.requirement("S14")
def test_every_instant_of_a_pause_is_on_the_record(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    ticking.send("schedule.pause")

    ticking.wait(300).send("schedule.resume")

    ranges = {
        moment
        for first, n in ticking.skipped_counts.items()
        for moment in [first]
        for _ in range(n)
    }
    assert NINE not in ranges
    assert sum(ticking.skipped_counts.values()) + len(ticking.staged_times) + 1 == 13


def test_a_claimed_run_is_asked_to_stop_and_named(ticking: FakeTicker) -> None:
    ticking.claim(NINE)

    answer = ticking.send("schedule.pause")

    assert isinstance(answer, ScheduleResponse)
    assert answer.in_flight == [str(RunKey(NINE, ID))]
    assert ticking.rows[RunKey(NINE, ID)].reason == Reason.PAUSED
    assert ticking.times_in(RunState.RUNNING) == [NINE]


def test_a_claimed_run_that_its_executor_dropped_is_owed_again(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    ticking.send("schedule.pause")
    ticking.cancel_unstarted(NINE)

    ticking.wait(5).send("schedule.resume")

    assert ticking.staged_times == [NINE, after(30), after(60)]


def test_a_claimed_run_that_was_not_dropped_in_time_goes_on(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    ticking.send("schedule.pause")

    ticking.wait(1).send("schedule.resume")

    row = ticking.rows[RunKey(NINE, ID)]
    assert (row.state, row.reason) == (RunState.RUNNING, None)
    assert ticking.staged_times == [after(30), after(60)]


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("reason", [Reason.REPLACED, Reason.CANCELLED])
def test_resume_takes_back_what_the_pause_asked_for_and_nothing_else(
    ticking: FakeTicker, reason: Reason
) -> None:
    ticking.claim(NINE, started=True)
    ticking.claim(after(30))
    ticking.rows[RunKey(NINE, ID)].reason = reason

    ticking.send("schedule.pause")
    paused = ticking.rows[RunKey(after(30), ID)].reason
    ticking.wait(1).send("schedule.resume")

    assert paused == Reason.PAUSED
    assert ticking.rows[RunKey(NINE, ID)].reason == reason
    assert ticking.rows[RunKey(after(30), ID)].reason is None


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_times_counts_a_run_once_however_a_pause_met_it(times: int, *, dropped: bool) -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": times})
    ticking.claim(NINE)
    ticking.send("schedule.pause")
    if dropped:
        ticking.cancel_unstarted(NINE)
    else:
        ticking.complete(NINE)

    ticking.wait(5).send("schedule.resume")
    for _ in range(30):
        ticking.run_due()
        ticking.wait(10).stage_all()

    assert ticking.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(times)]
    assert ticking.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("mode", ["none", "one", "all"])
def test_a_claimed_run_that_a_pause_met_too_late_for_catch_up_counts_if_it_runs(
    mode: str, *, dropped: bool
) -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 3}, catch_up={"mode": mode})
    ticking.claim(NINE)
    ticking.wait(65).send("schedule.pause")
    if dropped:
        ticking.cancel_unstarted(NINE)

    ticking.wait(5).send("schedule.resume")
    if not dropped:
        ticking.complete(NINE)
    for _ in range(60):
        ticking.stage_all().run_due()
        ticking.wait(5)

    assert len(ticking.times_in(RunState.SUCCEEDED)) == 3
    assert (NINE in ticking.times_in(RunState.SUCCEEDED)) is (not dropped or mode != "none")
    assert ticking.record.state is ScheduleState.COMPLETED


def test_a_run_that_has_started_does_not_take_planning_back(ticking: FakeTicker) -> None:
    ticking.claim(NINE, started=True)
    ticking.wait(3600).stage_all().run_due()

    ticking.send("schedule.pause")

    assert ticking.record.planned_until > after(3500)


def test_what_waits_for_a_retry_goes_on_through_a_pause(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    ticking.complete(NINE, RunState.RETRYING)

    ticking.wait(1).send("schedule.pause")

    assert ticking.times_in(RunState.RETRYING) == [NINE]


def test_an_overdue_run_that_a_put_renewed_is_withdrawn_by_the_pause_behind_it(
    ticking: FakeTicker,
) -> None:
    put = {"key": "k", "when": {"every": "1h"}, "target": {"task": {"name": "harebell.echo"}}}

    ticking.wait(10).send_all(
        ("schedule.put", {**put, "expected_version": "any"}), ("schedule.pause", {})
    )

    assert ticking.staged_times == []


def test_pausing_twice_is_pausing_once(ticking: FakeTicker) -> None:
    ticking.send("schedule.pause")

    answer = ticking.wait(1).send("schedule.pause", note="still")

    assert (answer.state, ticking.record.reason) == ("paused", "still")


def test_resuming_what_is_active_changes_nothing(ticking: FakeTicker) -> None:
    before = ticking.stored_record

    answer = ticking.send("schedule.resume")

    assert isinstance(answer, ScheduleResponse)
    assert answer.status == "resumed"
    assert ticking.stored_record == before


def test_what_is_cancelled_can_be_neither_paused_nor_resumed(ticking: FakeTicker) -> None:
    ticking.send("schedule.cancel")
    before = ticking.load_unit()

    for verb, code in (("schedule.pause", "not_active"), ("schedule.resume", "not_paused")):
        with pytest.raises(Conflict) as refused:
            ticking.send(verb)
        assert refused.value.code == code

    assert ticking.load_unit() == before


def test_resuming_past_the_last_instant_completes_the_schedule() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "end": "2026-11-20T09:01:00Z"}, catch_up={"mode": "none"})
    ticking.run_due()
    ticking.send("schedule.pause")

    ticking.wait(600).send("schedule.resume")

    assert ticking.record.state is ScheduleState.COMPLETED
    assert ticking.staged_times == []
