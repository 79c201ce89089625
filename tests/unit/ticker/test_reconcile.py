"""The effect of ended runs on their schedule."""

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


def ticker_with(when: dict[str, Any], **policies: Any) -> FakeTicker:
    ticker = FakeTicker(NINE)
    ticker.put(when, **policies)
    return ticker


def run(ticker: FakeTicker, time: datetime, seconds: float, state: RunState) -> None:
    """Run for `seconds`, end in `state` and reconcile."""
    ticker.claim(time, started=True)
    ticker.wait(seconds).stage_all()
    ticker.complete(time, state)
    ticker.reconcile()


@pytest.mark.parametrize("when", [COMPLETION, SUCCESS])
def test_sequential_schedule_stages_one_run_and_waits_for_its_end(when: dict[str, Any]) -> None:
    ticker = ticker_with(when)

    ticker.claim(NINE, started=True)
    ticker.wait(3600).stage_all().reconcile()

    assert ticker.record.awaited_run == NINE
    assert sorted(key.scheduled_for for key in ticker.rows) == [NINE]


@pytest.mark.requirement("ASK-17")
@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD, RunState.EXPIRED])
def test_from_completion_counts_from_the_end_of_a_run_in_any_state(
    state: RunState,
) -> None:
    ticker = ticker_with(COMPLETION)

    run(ticker, NINE, 7, state)

    assert (ticker.staged_times, ticker.record.awaited_run) == ([after(37)], after(37))


def test_from_completion_skips_no_time_after_a_long_run() -> None:
    ticker = ticker_with(COMPLETION)

    run(ticker, NINE, 3600, RunState.SUCCEEDED)

    assert ticker.staged_times == [after(3630)]
    assert ticker.skipped_counts == {}


def test_from_completion_counts_from_the_end_and_not_from_the_reconciliation() -> None:
    ticker = ticker_with(COMPLETION)
    ticker.claim(NINE, started=True)
    ticker.complete(NINE)

    ticker.wait(20).reconcile()

    assert ticker.staged_times == [after(30)]


@pytest.mark.requirement("S06")
def test_from_completion_schedule_completes_after_times() -> None:
    ticker = ticker_with({**COMPLETION, "times": 2})

    run(ticker, NINE, 5, RunState.SUCCEEDED)
    run(ticker.wait(30), after(35), 5, RunState.SUCCEEDED)

    assert ticker.record.state is ScheduleState.COMPLETED
    assert (ticker.staged_times, ticker.record.next_at) == ([], None)


@pytest.mark.requirement("S07")
def test_from_completion_schedule_completes_at_its_end() -> None:
    ticker = ticker_with({**COMPLETION, "end": "2026-11-20T09:00:40Z"})

    run(ticker, NINE, 11, RunState.SUCCEEDED)

    assert (ticker.staged_times, ticker.record.state) == ([], ScheduleState.COMPLETED)


def test_until_success_schedule_completes_after_the_first_success() -> None:
    ticker = ticker_with(SUCCESS)
    run(ticker, NINE, 5, RunState.DEAD)
    next_times = list(ticker.staged_times)

    run(ticker.wait(25), after(30), 5, RunState.SUCCEEDED)

    assert next_times == [after(30)]
    assert (ticker.staged_times, ticker.record.state) == ([], ScheduleState.COMPLETED)


def test_until_success_keeps_its_times_and_skips_the_times_during_a_run() -> None:
    ticker = ticker_with(SUCCESS, catch_up={"mode": "none"})

    run(ticker, NINE, 100, RunState.DEAD)

    assert ticker.staged_times[0] == after(60)
    assert ticker.skipped_counts == {after(30): 1}


@pytest.mark.parametrize("verb", ["schedule.pause", "schedule.cancel"])
def test_success_during_a_pause_or_after_a_cancel_is_applied(verb: str) -> None:
    ticker = ticker_with(SUCCESS)
    ticker.claim(NINE, started=True)
    ticker.wait(1).send(verb)

    ticker.complete(NINE)
    ticker.reconcile()

    cancelled = verb == "schedule.cancel"
    expected = ScheduleState.CANCELLED if cancelled else ScheduleState.COMPLETED
    assert (ticker.record.state, ticker.record.next_at) == (expected, None)


@pytest.mark.requirement("S06")
@pytest.mark.parametrize("change_at", [40, 400])
def test_success_during_a_pause_ends_its_version_before_the_pending_version_is_active(
    change_at: float,
) -> None:
    ticker = ticker_with(SUCCESS)
    ticker.claim(NINE, started=True)
    ticker.send("schedule.patch", set={"priority": 9}, effective_at=after(change_at))
    ticker.wait(1).send("schedule.pause")
    ticker.complete(NINE)
    ticker.reconcile()
    paused = ticker.record.state

    ticker.wait(100).send("schedule.resume")
    ticker.reconcile()
    for _ in range(40):
        ticker.wait(10).stage_all().run_due()
        ticker.reconcile()

    assert paused is ScheduleState.PAUSED
    ran = ticker.times_in(RunState.SUCCEEDED)
    assert (ran[0], len(ran)) == (NINE, 2)
    assert min(ran[1:]) >= after(change_at)


@pytest.mark.requirement("S06")
def test_success_completes_a_blocked_schedule_after_the_other_run_is_resolved() -> None:
    ticker = ticker_with(SUCCESS, on_unknown="block")
    ticker.claim(NINE, started=True)
    ticker.wait(1).send("schedule.trigger")
    ticker.claim(after(1), started=True)
    ticker.complete(after(1), RunState.UNRESOLVED)
    ticker.reconcile()

    ticker.complete(NINE)
    ticker.reconcile()
    blocked = ticker.record.state
    ticker.wait(100).send("run.resolve", run_id=str(RunKey(after(1), ID)), **{"as": "succeeded"})
    ticker.reconcile()

    assert (blocked, ticker.record.state) == (ScheduleState.BLOCKED, ScheduleState.COMPLETED)
    assert ticker.staged_times == []


def test_run_that_ends_during_a_pause_stages_the_next_run_after_the_resume() -> None:
    ticker = ticker_with(COMPLETION)
    ticker.claim(NINE, started=True)
    ticker.wait(1).send("schedule.pause")
    ticker.wait(9).complete(NINE)
    ticker.reconcile()
    paused = (ticker.record.state, ticker.staged_times)

    ticker.wait(1).send("schedule.resume")

    assert paused == (ScheduleState.PAUSED, [])
    assert ticker.staged_times == [after(40)]


def fail(ticker: FakeTicker, times: int, *, first: int = 0) -> None:
    for k in range(first, first + times):
        run(ticker, after(30 * k), 1, RunState.DEAD)
        ticker.wait(29).stage_all()


def test_pause_after_failures_pauses_the_schedule_with_a_reason() -> None:
    ticker = ticker_with(EVERY, pause_after_failures=3)

    fail(ticker, 2)
    before = ticker.record.state
    fail(ticker, 1, first=2)

    assert before is ScheduleState.ACTIVE
    assert ticker.record.state is ScheduleState.PAUSED
    assert ticker.record.reason == "3 runs failed in a row"
    assert (ticker.staged_times, ticker.record.next_at) == ([], None)
    assert ticker.rows[RunKey(after(90), ID)].reason == Reason.PAUSED


def test_only_a_success_resets_the_consecutive_failures() -> None:
    ticker = ticker_with(EVERY, pause_after_failures=3)
    fail(ticker, 2)
    run(ticker, after(60), 1, RunState.EXPIRED)
    unchanged = ticker.record.consecutive_failures
    run(ticker.wait(29), after(90), 1, RunState.SUCCEEDED)

    assert (unchanged, ticker.record.consecutive_failures) == (2, 0)


def test_resume_resets_the_consecutive_failures() -> None:
    ticker = ticker_with(EVERY, pause_after_failures=2)
    fail(ticker, 2)

    ticker.send("schedule.resume")
    fail(ticker, 1, first=2)
    one_more = ticker.record.state
    fail(ticker, 1, first=3)

    assert (one_more, ticker.record.state) == (ScheduleState.ACTIVE, ScheduleState.PAUSED)


def test_ended_run_counts_once_after_two_reconciliations() -> None:
    ticker = ticker_with(EVERY, pause_after_failures=2)
    run(ticker, NINE, 1, RunState.DEAD)

    ticker.reconcile().reconcile()

    assert (ticker.record.consecutive_failures, ticker.record.state) == (1, ScheduleState.ACTIVE)


def test_failures_count_in_the_order_of_the_scheduled_times() -> None:
    ticker = ticker_with(EVERY, pause_after_failures=2)
    ticker.claim(NINE, started=True)
    ticker.claim(after(30), started=True)
    ticker.complete(after(30), RunState.DEAD)
    ticker.complete(NINE, RunState.SUCCEEDED)
    ticker.reconcile()

    assert ticker.record.consecutive_failures == 1
