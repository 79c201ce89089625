"""Pause and resume: no run during the pause, no lost run and no repeated run."""

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
def ticker() -> FakeTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    return ticker


@pytest.mark.requirement("S14")
def test_pause_unstages_every_run_and_stages_no_other(ticker: FakeTicker) -> None:
    response = ticker.send("schedule.pause")
    ticker.wait(300).stage_all()

    assert (response.state, ticker.staged_times) == ("paused", [])
    assert ticker.times_in(RunState.CANCELLED) == [NINE, after(30), after(60)]
    assert {row.reason for row in ticker.rows.values()} == {Reason.PAUSED}


@pytest.mark.requirement("S14")
def test_pause_and_resume_within_the_horizon_lose_no_run(ticker: FakeTicker) -> None:
    ticker.run_due()
    ticker.wait(10).send("schedule.pause")

    response = ticker.wait(5).send("schedule.resume")

    assert isinstance(response, ScheduleResponse)
    assert response.next_at == [after(30), after(60), after(90)]
    assert ticker.staged_times == [after(30), after(60), after(90)]
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE]


@pytest.mark.requirement("S14")
def test_pause_and_resume_in_one_batch_lose_no_run(ticker: FakeTicker) -> None:
    ticker.wait(1).send_all(("schedule.pause", {}), ("schedule.resume", {}))

    assert ticker.staged_times == [NINE, after(30), after(60)]


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(("mode", "caught_up"), [("none", 0), ("one", 1), ("all", 10)])
def test_catch_up_policy_decides_about_the_times_of_a_pause(mode: str, caught_up: int) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, catch_up={"mode": mode})
    ticker.run_due()
    ticker.wait(10).send("schedule.pause")

    response = ticker.wait(300).send("schedule.resume")

    missed = [time for time in ticker.staged_times if time <= after(310)]
    assert missed == [after(300 - 30 * k) for k in range(caught_up)][::-1]
    assert sum(ticker.skipped_counts.values()) == 10 - caught_up
    assert isinstance(response, ScheduleResponse)
    assert response.next_at[0] == min([after(330), *missed])


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("cron", ["0 * * * * *", "*/5 * * * * *", "* * * * * *"])
@pytest.mark.parametrize("pause", [30, 59, 3_600])
@pytest.mark.parametrize(("mode", "caught_up"), [("none", 0), ("one", 1)])
def test_no_time_of_a_pause_is_only_a_little_late(
    cron: str, pause: int, mode: str, caught_up: int
) -> None:
    """A pass decides about at most some hundreds of times, so a long pause needs several."""
    ticker = FakeTicker(after(50))
    ticker.put({"cron": cron}, catch_up={"mode": mode})
    ticker.run_due()
    ticker.send("schedule.pause")
    ran = set(ticker.times_in(RunState.SUCCEEDED))

    ticker.wait(pause).send("schedule.resume")
    for _ in range(60):
        ticker.stage_all()
    staged = {time for time in ticker.staged_times if time < ticker.now}

    assert len(staged - ran) == caught_up


@pytest.mark.requirement("S14")
def test_end_of_a_pause_is_forgotten_when_no_time_depends_on_it(ticker: FakeTicker) -> None:
    ticker.send("schedule.pause")
    ticker.wait(10).send("schedule.resume")
    for _ in range(12):
        ticker.wait(10).stage_all()

    assert ticker.record.paused_until is None


@pytest.mark.requirement("S14")
def test_pause_after_failures_does_not_end_at_the_end_of_an_earlier_pause() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "start": "2026-11-20T09:00:10Z"}, pause_after_failures=1)
    ticker.send("schedule.pause")
    ticker.wait(5).send("schedule.resume")
    ticker.wait(5).claim(after(10), started=True)
    ticker.complete(after(10), RunState.DEAD)
    ticker.reconcile()
    ticker.wait(60).stage_all()

    assert (ticker.record.state, ticker.record.paused_until) == (ScheduleState.PAUSED, None)


@pytest.mark.requirement("S14")
def test_every_time_of_a_pause_is_recorded(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    ticker.send("schedule.pause")

    ticker.wait(300).send("schedule.resume")

    assert NINE not in ticker.skipped_counts
    assert sum(ticker.skipped_counts.values()) + len(ticker.staged_times) + 1 == 13


def test_pause_requests_a_stop_of_a_claimed_run_and_returns_its_id(ticker: FakeTicker) -> None:
    ticker.claim(NINE)

    response = ticker.send("schedule.pause")

    assert isinstance(response, ScheduleResponse)
    assert response.in_flight == [str(RunKey(NINE, ID))]
    assert ticker.rows[RunKey(NINE, ID)].reason == Reason.PAUSED
    assert ticker.times_in(RunState.RUNNING) == [NINE]


def test_claimed_run_that_a_pause_cancelled_is_staged_again_after_the_resume(
    ticker: FakeTicker,
) -> None:
    ticker.claim(NINE)
    ticker.send("schedule.pause")
    ticker.cancel_unstarted(NINE)

    ticker.wait(5).send("schedule.resume")

    assert ticker.staged_times == [NINE, after(30), after(60)]


def test_claimed_run_continues_when_the_resume_precedes_its_stop(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    ticker.send("schedule.pause")

    ticker.wait(1).send("schedule.resume")

    row = ticker.rows[RunKey(NINE, ID)]
    assert (row.state, row.reason) == (RunState.RUNNING, None)
    assert ticker.staged_times == [after(30), after(60)]


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("reason", [Reason.REPLACED, Reason.CANCELLED])
def test_resume_withdraws_only_the_stop_requests_of_the_pause(
    ticker: FakeTicker, reason: Reason
) -> None:
    ticker.claim(NINE, started=True)
    ticker.claim(after(30))
    ticker.change_row(NINE, reason=reason, stop_requested_at=NINE)

    ticker.send("schedule.pause")
    paused = ticker.rows[RunKey(after(30), ID)].reason
    ticker.wait(1).send("schedule.resume")

    assert paused == Reason.PAUSED
    assert ticker.rows[RunKey(NINE, ID)].reason == reason
    assert ticker.rows[RunKey(after(30), ID)].reason is None


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_times_counts_a_claimed_run_once_after_a_pause(times: int, *, cancelled: bool) -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": times})
    ticker.claim(NINE)
    ticker.send("schedule.pause")
    if cancelled:
        ticker.cancel_unstarted(NINE)
    else:
        ticker.complete(NINE)

    ticker.wait(5).send("schedule.resume")
    for _ in range(30):
        ticker.run_due()
        ticker.wait(10).stage_all()

    assert ticker.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(times)]
    assert ticker.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize("mode", ["none", "one", "all"])
def test_claimed_run_that_is_missed_at_the_pause_counts_if_it_runs(
    mode: str, *, cancelled: bool
) -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 3}, catch_up={"mode": mode})
    ticker.claim(NINE)
    ticker.wait(65).send("schedule.pause")
    if cancelled:
        ticker.cancel_unstarted(NINE)

    ticker.wait(5).send("schedule.resume")
    if not cancelled:
        ticker.complete(NINE)
    for _ in range(60):
        ticker.stage_all().run_due()
        ticker.wait(5)

    assert len(ticker.times_in(RunState.SUCCEEDED)) == 3
    assert (NINE in ticker.times_in(RunState.SUCCEEDED)) is (not cancelled or mode == "all")
    assert ticker.record.state is ScheduleState.COMPLETED


def test_started_run_does_not_move_the_planning_cursor_back(ticker: FakeTicker) -> None:
    ticker.claim(NINE, started=True)
    ticker.wait(3600).stage_all().run_due()

    ticker.send("schedule.pause")

    assert ticker.record.planned_until > after(3500)


def test_run_between_attempts_continues_during_a_pause(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    ticker.complete(NINE, RunState.RETRYING)

    ticker.wait(1).send("schedule.pause")

    assert ticker.times_in(RunState.RETRYING) == [NINE]


def test_pause_unstages_an_overdue_run_that_a_put_of_the_same_batch_moved(
    ticker: FakeTicker,
) -> None:
    put = {"key": "k", "when": {"every": "1h"}, "target": {"task": {"name": "harebell.echo"}}}

    ticker.wait(10).send_all(
        ("schedule.put", {**put, "expected_version": "any"}), ("schedule.pause", {})
    )

    assert ticker.staged_times == []


def test_second_pause_changes_only_the_note(ticker: FakeTicker) -> None:
    ticker.send("schedule.pause")

    response = ticker.wait(1).send("schedule.pause", note="still")

    assert (response.state, ticker.record.reason) == ("paused", "still")


def test_resume_of_an_active_schedule_changes_nothing(ticker: FakeTicker) -> None:
    before = ticker.stored_record

    response = ticker.send("schedule.resume")

    assert isinstance(response, ScheduleResponse)
    assert response.status == "resumed"
    assert ticker.stored_record == before


def test_pause_and_resume_are_rejected_for_a_cancelled_schedule(ticker: FakeTicker) -> None:
    ticker.send("schedule.cancel")
    before = ticker.load_unit()

    for verb, code in (("schedule.pause", "not_active"), ("schedule.resume", "not_paused")):
        with pytest.raises(Conflict) as error:
            ticker.send(verb)
        assert error.value.code == code

    assert ticker.load_unit() == before


def test_resume_after_the_last_time_completes_the_schedule() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "end": "2026-11-20T09:01:00Z"}, catch_up={"mode": "none"})
    ticker.run_due()
    ticker.send("schedule.pause")

    ticker.wait(600).send("schedule.resume")

    assert ticker.record.state is ScheduleState.COMPLETED
    assert ticker.staged_times == []
