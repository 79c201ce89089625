"""The status of a schedule after the end of its runs: counts, last run and visible state."""

from typing import Any

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunResult, RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
ONCE = {"at": "2026-11-20T09:00:00Z"}


def ticker_with(when: dict[str, Any], **policies: Any) -> FakeTicker:
    ticker = FakeTicker(NINE)
    ticker.put(when, **policies)
    return ticker


def counts_of(ticker: FakeTicker) -> tuple[int, int]:
    return ticker.record.executions, ticker.record.failures


@pytest.mark.requirement("S02", "S40")
def test_one_shot_is_active_until_its_run_has_ended() -> None:
    ticker = ticker_with(ONCE)
    states = [ticker.record.visible_state]

    ticker.claim(NINE, started=True)
    states.append(ticker.wait(60).record.visible_state)
    ticker.complete(NINE, RunState.DEAD)
    states.append(ticker.record.visible_state)

    active, completed = ScheduleState.ACTIVE, ScheduleState.COMPLETED
    assert states == [active, active, completed]
    assert ticker.record.state is completed


@pytest.mark.requirement("S06")
def test_ended_run_is_counted_once_when_it_leaves_the_open_runs() -> None:
    ticker = ticker_with({**EVERY, "times": 4})

    for state in (RunState.SUCCEEDED, RunState.DEAD, RunState.SUCCEEDED):
        time = ticker.staged_times[0]
        ticker.claim(time, started=True)
        ticker.complete(time, state)
        ticker.wait(30).stage_all()

    record = ticker.record
    uncounted = [
        run
        for key, run in ticker.rows.items()
        if key.scheduled_for in record.open_runs and run.attempt
    ]
    assert len(uncounted) < 3
    assert record.executions + len(uncounted) == 3
    assert record.failures + sum(run.state is RunState.DEAD for run in uncounted) == 1
    assert record.last_run == after(30 * (2 - len(uncounted)))


@pytest.mark.requirement("S06")
def test_until_success_that_gave_up_has_the_dead_run_as_its_last_run() -> None:
    ticker = ticker_with({**EVERY, "times": 2, "until": "success"})

    for time in (NINE, after(30)):
        ticker.claim(time, started=True)
        ticker.complete(time, RunState.DEAD)
        ticker.reconcile().wait(30).stage_all()

    assert ticker.record.visible_state is ScheduleState.COMPLETED
    assert ticker.record.last_run == after(30)
    assert counts_of(ticker) == (2, 2)


@pytest.mark.requirement("S06")
def test_times_that_were_skipped_after_the_last_execution_are_not_the_last_run() -> None:
    end = "2026-11-20T09:02:00Z"
    when = {**EVERY, "end": end, "until": "success"}
    ticker = ticker_with(when, catch_up={"mode": "none"})

    ticker.claim(NINE, started=True)
    ticker.wait(600).complete(NINE, RunState.DEAD)
    ticker.reconcile().stage_all()

    assert ticker.skipped_counts
    assert ticker.record.visible_state is ScheduleState.COMPLETED
    assert ticker.record.last_run == NINE


@pytest.mark.requirement("S14")
def test_run_that_a_user_cancels_is_the_last_run_of_a_one_shot() -> None:
    ticker = FakeTicker(after(-10))
    ticker.put(ONCE)

    ticker.send("run.cancel", run_id=str(RunKey(NINE, ID)))

    record = ticker.record
    assert (record.visible_state, record.last_run) == (ScheduleState.COMPLETED, NINE)
    assert counts_of(ticker) == (0, 0)


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("verb", ["schedule.cancel", "run.cancel"])
def test_cancelled_run_counts_as_an_execution_after_its_first_attempt(verb: str) -> None:
    ticker = ticker_with(ONCE)
    ticker.claim(NINE, started=True)
    ticker.complete(NINE, RunState.RETRYING)

    body = {"run_id": str(RunKey(NINE, ID))} if verb == "run.cancel" else {}
    ticker.send(verb, **body)

    assert counts_of(ticker) == (1, 0)
    assert ticker.record.last_run == NINE


@pytest.mark.requirement("S14", "S101")
def test_cancelled_retry_of_an_unresolved_run_is_the_last_run() -> None:
    ticker = ticker_with(EVERY)
    ticker.claim(NINE, started=True)
    ticker.complete(NINE, RunState.UNRESOLVED)
    run_id = str(RunKey(NINE, ID))
    ticker.send("run.resolve", run_id=run_id, **{"as": "retry"})

    ticker.send("run.cancel", run_id=run_id)

    assert ticker.record.state is ScheduleState.ACTIVE
    assert ticker.record.last_run == NINE
    assert counts_of(ticker) == (0, 0)


@pytest.mark.requirement("S14")
def test_paused_run_is_not_the_last_run() -> None:
    ticker = ticker_with(EVERY)
    ticker.run_due()

    ticker.wait(30).send("schedule.pause")
    ticker.wait(60).send("schedule.resume")
    ticker.stage_all()

    last_run = ticker.record.last_run
    assert last_run is None or last_run == NINE


def test_run_without_a_row_is_not_counted() -> None:
    record = ticker_with(ONCE).record

    counted = record.with_results({NINE: None})

    assert counted == record
    assert record.with_results({NINE: RunResult(RunState.DEAD, 1)}).failures == 1


@pytest.mark.requirement("S06")
@pytest.mark.parametrize(
    ("result", "counts"),
    [
        (RunResult(RunState.SUCCEEDED, 1), (1, 0)),
        (RunResult(RunState.DEAD, 3), (1, 1)),
        (RunResult(RunState.EXPIRED, 2), (1, 0)),
        (RunResult(RunState.EXPIRED, 0), (0, 0)),
        (RunResult(RunState.CANCELLED, 0), (0, 0)),
    ],
)
def test_run_that_ended_without_an_attempt_is_no_execution(
    result: RunResult, counts: tuple[int, int]
) -> None:
    record = ticker_with(EVERY).record.with_results({NINE: result})

    assert (record.executions, record.failures) == counts
    assert record.last_run == NINE


def test_expired_run_without_an_attempt_leaves_the_last_run_to_a_later_skipped_time() -> None:
    record = ticker_with(EVERY).record.with_skipped_run(after(30))

    expired = record.with_results({NINE: RunResult(RunState.EXPIRED, 0)})
    executed = record.with_results({NINE: RunResult(RunState.EXPIRED, 1)})

    assert (expired.last_run, executed.last_run) == (after(30), NINE)
