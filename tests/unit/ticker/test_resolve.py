"""Unresolved runs, which block their schedule until a user resolves them."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.fakes.schedules import ID, TASK
from tests.fakes.ticker import TENANT, FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.commands import Resolution, RunResolve
from harebell.contract.errors import NotFound
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model.unit_of_work import UnitOfWork

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
OTHER = UUID("a2a3e7d0-5b0c-5a5e-9b56-0f6a9c0f4a11")


@pytest.fixture
def ticker() -> FakeTicker:
    """Return a schedule that is blocked by the run of nine."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, on_unknown="block")
    lose(ticker)
    return ticker


def lose(ticker: FakeTicker, seconds: float = 0) -> None:
    ticker.claim(after(seconds), started=True)
    ticker.complete(after(seconds), RunState.UNRESOLVED)
    ticker.reconcile()


def resolve(ticker: FakeTicker, as_: str, seconds: float = 0) -> RunResponse:
    response = ticker.send("run.resolve", run_id=str(RunKey(after(seconds), ID)), **{"as": as_})
    assert isinstance(response, RunResponse)
    return response


@pytest.mark.requirement("S101")
def test_unresolved_run_blocks_its_schedule_and_unstages_its_runs(ticker: FakeTicker) -> None:
    assert (ticker.record.state, ticker.record.next_at) == (ScheduleState.BLOCKED, None)
    assert ticker.record.reason
    assert ticker.staged_times == []
    assert {ticker.rows[RunKey(after(k), ID)].reason for k in (30, 60)} == {Reason.PAUSED}
    assert ticker.wait(600).stage_all().staged_times == []


@pytest.mark.requirement("S101")
@pytest.mark.parametrize(
    ("as_", "state"),
    [
        ("succeeded", RunState.SUCCEEDED),
        ("skipped", RunState.SKIPPED),
        ("retry", RunState.STAGED),
    ],
)
def test_resolve_sets_the_state_of_the_run_and_the_schedule_continues(
    ticker: FakeTicker, as_: str, state: RunState
) -> None:
    response = resolve(ticker.wait(5), as_)

    assert (response.status, response.state) == ("resolved", state)
    assert ticker.rows[RunKey(NINE, ID)].state is state
    assert ticker.record.state is ScheduleState.ACTIVE
    assert [time for time in ticker.staged_times if time > NINE] == [after(30), after(60)]


@pytest.mark.requirement("S101")
def test_catch_up_policy_decides_about_the_times_of_a_block() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, on_unknown="block", catch_up={"mode": "one"})
    lose(ticker)

    resolve(ticker.wait(300), "skipped")

    assert ticker.staged_times[0] == after(270)
    assert sum(ticker.skipped_counts.values()) == 8


@pytest.mark.requirement("S101")
def test_schedule_with_two_unresolved_runs_continues_after_both_are_resolved() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, on_unknown="block")
    ticker.claim(NINE, started=True)
    ticker.wait(30).claim(after(30), started=True)
    ticker.complete(NINE, RunState.UNRESOLVED)
    ticker.complete(after(30), RunState.UNRESOLVED)
    ticker.reconcile()

    resolve(ticker, "succeeded")
    after_one = ticker.record.state
    resolve(ticker, "succeeded", 30)

    assert (after_one, ticker.record.state) == (ScheduleState.BLOCKED, ScheduleState.ACTIVE)


@pytest.mark.requirement("S101")
def test_unresolved_run_of_another_schedule_in_the_batch_blocks_nothing(
    ticker: FakeTicker,
) -> None:
    unit = ticker.load_unit()
    (run,) = unit.ended_runs.values()
    unit.ended_runs[RunKey(NINE, OTHER)] = replace(run, key=RunKey(NINE, OTHER))
    command = RunResolve(run_id=str(RunKey(NINE, ID)), as_=Resolution.SUCCEEDED)

    apply_command(unit, CommandContext(TENANT, command, ID, after(5), None))

    assert unit.schedules[ID].state is ScheduleState.ACTIVE


def test_resolve_is_rejected_for_a_run_that_is_not_unresolved(ticker: FakeTicker) -> None:
    resolve(ticker, "succeeded")

    for seconds in (0, 30, 3600):
        with pytest.raises(NotFound) as error:
            resolve(ticker, "retry", seconds)
        assert error.value.field == "run_id"


def test_resolve_of_a_run_of_an_unknown_schedule_is_rejected() -> None:
    command = RunResolve(run_id=str(RunKey(NINE, OTHER)), as_=Resolution.RETRY)

    with pytest.raises(NotFound):
        apply_command(UnitOfWork(), CommandContext(TENANT, command, OTHER, NINE, None))


def test_resolve_does_not_change_a_cancelled_schedule(ticker: FakeTicker) -> None:
    ticker.wait(1).send("schedule.cancel")

    resolve(ticker.wait(1), "succeeded")

    assert ticker.record.state is ScheduleState.CANCELLED


def test_sequential_schedule_continues_from_the_state_of_the_resolved_run() -> None:
    ticker = FakeTicker(NINE)
    rule = {"every": "30s", "start": "2026-11-20T09:00:00Z", "until": "success"}
    ticker.put(rule, on_unknown="block", target=TASK)
    lose(ticker)

    resolve(ticker.wait(5), "succeeded")
    ticker.reconcile()

    assert ticker.record.state is ScheduleState.COMPLETED
    assert ticker.staged_times == []


@pytest.mark.requirement("S06")
def test_run_that_ended_during_a_block_counts_towards_times() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 2}, on_unknown="block")
    ticker.claim(after(30))  # claimed and not started when the first run is lost
    lose(ticker)
    ticker.complete(after(30))
    ticker.wait(5).reconcile()

    resolve(ticker, "skipped")

    assert ticker.wait(600).stage_all().staged_times == []
    assert ticker.times_in(RunState.SUCCEEDED) == [after(30)]
    assert ticker.reconcile().record.open_runs == ()
