"""A run of unknown outcome: its schedule stops until a person says what became of it."""

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
from harebell.ticker.model.unit_of_work import Ended, UnitOfWork

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
OTHER = UUID("a2a3e7d0-5b0c-5a5e-9b56-0f6a9c0f4a11")


@pytest.fixture
def ticking() -> FakeTicker:
    """Held since the run of nine was lost."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, on_unknown="block")
    lose(ticking)
    return ticking


def lose(ticking: FakeTicker, seconds: float = 0) -> None:
    ticking.claim(after(seconds), started=True)
    ticking.complete(after(seconds), RunState.UNRESOLVED)
    ticking.reconcile()


def resolve(ticking: FakeTicker, as_: str, seconds: float = 0) -> RunResponse:
    answer = ticking.send("run.resolve", run_id=str(RunKey(after(seconds), ID)), **{"as": as_})
    assert isinstance(answer, RunResponse)
    return answer


@pytest.mark.requirement("S101")
def test_a_held_run_stops_its_schedule_and_takes_back_what_is_staged(ticking: FakeTicker) -> None:
    assert (ticking.record.state, ticking.record.next_at) == (ScheduleState.BLOCKED, None)
    assert ticking.record.reason
    assert ticking.staged_times == []
    assert {ticking.rows[RunKey(after(k), ID)].reason for k in (30, 60)} == {Reason.PAUSED}
    assert ticking.wait(600).stage_all().staged_times == []


@pytest.mark.requirement("S101")
@pytest.mark.parametrize(
    ("as_", "state"),
    [
        ("succeeded", RunState.SUCCEEDED),
        ("skipped", RunState.SKIPPED),
        ("retry", RunState.STAGED),
    ],
)
def test_resolved_the_run_is_what_the_person_says_and_the_schedule_goes_on(
    ticking: FakeTicker, as_: str, state: RunState
) -> None:
    answer = resolve(ticking.wait(5), as_)

    assert (answer.status, answer.state) == ("resolved", state)
    assert ticking.rows[RunKey(NINE, ID)].state is state
    assert ticking.record.state is ScheduleState.ACTIVE
    assert [moment for moment in ticking.staged_times if moment > NINE] == [after(30), after(60)]


@pytest.mark.requirement("S101")
def test_the_catch_up_policy_decides_about_what_the_hold_missed() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, on_unknown="block", catch_up={"mode": "one"})
    lose(ticking)

    resolve(ticking.wait(300), "skipped")

    assert ticking.staged_times[0] == after(210)
    assert sum(ticking.skipped_counts.values()) == 6


@pytest.mark.requirement("S101")
def test_with_two_held_runs_the_schedule_goes_on_when_both_are_resolved() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, on_unknown="block")
    ticking.claim(NINE, started=True)
    ticking.wait(30).claim(after(30), started=True)
    ticking.complete(NINE, RunState.UNRESOLVED)
    ticking.complete(after(30), RunState.UNRESOLVED)
    ticking.reconcile()

    resolve(ticking, "succeeded")
    after_one = ticking.record.state
    resolve(ticking, "succeeded", 30)

    assert (after_one, ticking.record.state) == (ScheduleState.BLOCKED, ScheduleState.ACTIVE)


@pytest.mark.requirement("S101")
def test_held_runs_of_other_schedules_in_the_same_batch_hold_up_nothing(
    ticking: FakeTicker,
) -> None:
    book = ticking.load_unit()
    book.ended_runs[RunKey(NINE, OTHER)] = Ended(RunState.UNRESOLVED, NINE)
    command = RunResolve(run_id=str(RunKey(NINE, ID)), as_=Resolution.SUCCEEDED)

    apply_command(book, CommandContext(TENANT, command, ID, after(5), None))

    assert book.schedules[ID].state is ScheduleState.ACTIVE


def test_only_a_held_run_is_resolved_and_only_once(ticking: FakeTicker) -> None:
    resolve(ticking, "succeeded")

    for seconds in (0, 30, 3600):
        with pytest.raises(NotFound) as refused:
            resolve(ticking, "retry", seconds)
        assert refused.value.field == "run_id"


def test_a_run_of_a_schedule_that_is_not_there_is_not_found() -> None:
    command = RunResolve(run_id=str(RunKey(NINE, OTHER)), as_=Resolution.RETRY)

    with pytest.raises(NotFound):
        apply_command(UnitOfWork(), CommandContext(TENANT, command, OTHER, NINE, None))


def test_resolving_does_not_end_a_pause_or_a_cancellation(ticking: FakeTicker) -> None:
    ticking.wait(1).send("schedule.cancel")

    resolve(ticking.wait(1), "succeeded")

    assert ticking.record.state is ScheduleState.CANCELLED


def test_a_schedule_that_waits_for_the_held_run_goes_on_from_how_it_was_resolved() -> None:
    ticking = FakeTicker(NINE)
    rule = {"every": "30s", "start": "2026-11-20T09:00:00Z", "until": "success"}
    ticking.put(rule, on_unknown="block", target=TASK)
    lose(ticking)

    resolve(ticking.wait(5), "succeeded")
    ticking.reconcile()

    assert ticking.record.state is ScheduleState.COMPLETED
    assert ticking.staged_times == []


@pytest.mark.requirement("S06")
def test_what_ran_while_its_schedule_was_held_counts_towards_times_when_it_goes_on() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 2}, on_unknown="block")
    ticking.claim(after(30))  # held by its executor, and not begun, when the first is lost
    lose(ticking)
    ticking.complete(after(30))
    ticking.wait(5).reconcile()

    resolve(ticking, "skipped")

    assert ticking.wait(600).stage_all().staged_times == []
    assert ticking.times_in(RunState.SUCCEEDED) == [after(30)]
    assert ticking.reconcile().record.open_runs == ()
