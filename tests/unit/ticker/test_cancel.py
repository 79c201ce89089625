"""The cancellation of schedules and runs, and triggers."""

import pytest
from tests.fakes.schedules import ID, TASK
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.commands import DeadLetterDiscard
from harebell.contract.errors import Conflict, InvalidInput, NotFound, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse, ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.commands.handlers import CommandContext, apply_command

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
MILLISECOND = 0.001


@pytest.fixture
def ticker() -> FakeTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    return ticker


def run_id(seconds: float) -> str:
    return str(RunKey(after(seconds), ID))


@pytest.mark.requirement("S33")
def test_cancel_ends_every_run_that_has_not_started(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    ticker.complete(NINE, RunState.RETRYING)

    response = ticker.wait(1).send("schedule.cancel")
    ticker.wait(600).stage_all()

    assert (response.state, ticker.record.next_at) == ("cancelled", None)
    assert ticker.times_in(RunState.CANCELLED) == [NINE, after(30), after(60)]
    assert {row.reason for row in ticker.rows.values()} == {Reason.CANCELLED}


@pytest.mark.requirement("S33")
def test_cancel_requests_a_stop_of_claimed_runs_and_returns_their_ids(ticker: FakeTicker) -> None:
    ticker.claim(NINE, started=True)

    response = ticker.send("schedule.cancel")

    assert isinstance(response, ScheduleResponse)
    assert response.in_flight == [run_id(0)]
    assert ticker.rows[RunKey(NINE, ID)].reason == Reason.CANCELLED


@pytest.mark.requirement("S33")
def test_cancel_applies_to_a_put_in_the_same_batch() -> None:
    ticker = FakeTicker(NINE)

    ticker.send_all(
        ("schedule.put", {"key": "k", "when": EVERY, "target": TASK}), ("schedule.cancel", {})
    )

    assert (ticker.record.state, ticker.staged_times) == (ScheduleState.CANCELLED, [])


@pytest.mark.requirement("S33")
def test_cancel_ends_an_overdue_run_that_a_put_of_the_same_batch_moved(
    ticker: FakeTicker,
) -> None:
    put = {"key": "k", "when": {"every": "1h"}, "target": TASK, "expected_version": "any"}

    ticker.wait(10).send_all(("schedule.put", put), ("schedule.cancel", {}))

    assert ticker.staged_times == []


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("pause", "paused")])
def test_trigger_is_recorded_as_skipped_when_the_same_batch_cancels_it(
    ticker: FakeTicker, verb: str, state: str
) -> None:
    ticker.run_due()

    ticker.wait(10).send_all(("schedule.trigger", {}), (f"schedule.{verb}", {}))

    assert (ticker.staged_times, ticker.record.state) == ([], state)
    assert ticker.skipped_counts == {after(10): 1}


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_staged_replay_is_cancelled_by_a_cancel_and_not_by_a_pause(
    ticker: FakeTicker, verb: str
) -> None:
    ticker.run_due()
    planned_until = ticker.record.planned_until
    ticker.change_row(NINE, state=RunState.STAGED, attempt=0, replay_number=1, finished_at=None)

    ticker.wait(1).send(f"schedule.{verb}")

    state = ticker.rows[RunKey(NINE, ID)].state
    assert (state is RunState.CANCELLED) is (verb == "cancel")
    assert ticker.record.planned_until >= planned_until - 2 * (after(30) - NINE)


def test_second_cancel_changes_nothing(ticker: FakeTicker) -> None:
    ticker.send("schedule.cancel")

    response = ticker.wait(1).send("schedule.cancel")

    assert response.state == "cancelled"


@pytest.mark.requirement("S18")
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "trigger"])
@pytest.mark.parametrize("tenant", ["default", "other"])
def test_command_finds_no_schedule_when_it_does_not_exist_or_has_another_tenant(
    verb: str, tenant: str, ticker: FakeTicker
) -> None:
    empty = tenant == "default"
    unit = FakeTicker(NINE).load_unit() if empty else ticker.load_unit()
    before = FakeTicker(NINE).load_unit() if empty else ticker.load_unit()
    context = ticker.context_of(f"schedule.{verb}", {})

    with pytest.raises(NotFound) as error:
        apply_command(unit, CommandContext(tenant, context.command, ID, NINE, None))

    assert error.value.reason == "The schedule does not exist."
    assert unit == before


def test_command_of_another_service_is_rejected(ticker: FakeTicker) -> None:
    command = DeadLetterDiscard.model_validate({"ids": [ID]})

    with pytest.raises(Rejected) as error:
        apply_command(ticker.load_unit(), CommandContext("default", command, ID, NINE, None))

    assert error.value.code == "unknown_command"


@pytest.mark.requirement("S01")
def test_trigger_stages_one_manual_run_at_the_time_of_acceptance(ticker: FakeTicker) -> None:
    ticker.run_due()

    response = ticker.wait(10).send("schedule.trigger")

    assert isinstance(response, ScheduleResponse)
    assert (response.status, response.run_id) == ("triggered", run_id(10))
    assert ticker.staged_times == [after(10), after(30), after(60), after(90)]


def test_trigger_uses_the_next_millisecond_without_a_run(ticker: FakeTicker) -> None:
    responses = [ticker.send("schedule.trigger") for _ in range(2)]
    ticker.run_due()
    responses.append(ticker.send("schedule.trigger"))

    run_ids = [each.run_id for each in responses if isinstance(each, ScheduleResponse)]
    assert run_ids == [run_id(k * MILLISECOND) for k in (1, 2, 3)]


def test_triggers_of_one_batch_are_separate_runs(ticker: FakeTicker) -> None:
    ticker.send_all(*[("schedule.trigger", {})] * 3)

    assert ticker.staged_times[:4] == [after(k * MILLISECOND) for k in range(4)]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_trigger_is_rejected_for_a_cancelled_schedule_and_accepted_for_a_paused_one(
    ticker: FakeTicker, verb: str
) -> None:
    ticker.send(f"schedule.{verb}")
    ticker.wait(1)

    if verb == "cancel":
        with pytest.raises(Conflict) as error:
            ticker.send("schedule.trigger")
        assert error.value.code == "not_active"
    else:
        ticker.send("schedule.trigger")
        assert ticker.staged_times == [after(1)]


@pytest.mark.requirement("S06")
def test_triggered_run_does_not_count_towards_times() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 2})
    ticker.run_due()

    ticker.wait(10).send("schedule.trigger")
    ticker.wait(1).send("schedule.pause")
    ticker.wait(1).send("schedule.resume")
    for _ in range(20):
        ticker.wait(10).stage_all().run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30)]
    assert ticker.times_in(RunState.CANCELLED) == [after(10)]


@pytest.mark.requirement("S33")
def test_run_cancel_ends_one_run_only(ticker: FakeTicker) -> None:
    response = ticker.send("run.cancel", run_id=run_id(30))

    assert isinstance(response, RunResponse)
    assert (response.status, response.state) == ("cancelled", "cancelled")
    assert ticker.staged_times == [NINE, after(60)]
    assert after(30) not in ticker.record.open_runs


@pytest.mark.requirement("S33")
def test_cancelled_run_is_not_staged_again_after_a_resume(ticker: FakeTicker) -> None:
    ticker.send("run.cancel", run_id=run_id(30))

    ticker.send_all(("schedule.pause", {}), ("schedule.resume", {}))

    assert ticker.staged_times == [NINE, after(60)]


@pytest.mark.requirement("S33", "S107")
def test_run_cancel_ends_a_run_between_attempts(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    ticker.complete(NINE, RunState.RETRYING)

    response = ticker.send("run.cancel", run_id=run_id(0))

    assert response.state == "cancelled"
    assert ticker.times_in(RunState.RETRYING) == []


@pytest.mark.requirement("S33")
def test_run_cancel_requests_a_stop_of_a_claimed_run(ticker: FakeTicker) -> None:
    ticker.claim(NINE)

    response = ticker.send("run.cancel", run_id=run_id(0))

    assert isinstance(response, RunResponse)
    assert (response.status, response.state) == ("in_flight", "running")
    assert ticker.rows[RunKey(NINE, ID)].reason == Reason.CANCELLED


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("seconds", [0, 31, 3600])
def test_run_cancel_is_rejected_for_an_ended_or_unknown_run(
    ticker: FakeTicker, seconds: int
) -> None:
    ticker.run_due()
    before = ticker.load_unit()

    with pytest.raises(NotFound) as error:
        ticker.send("run.cancel", run_id=run_id(seconds))

    assert error.value.field == "run_id"
    assert ticker.load_unit() == before


@pytest.mark.requirement("S33")
def test_run_cancel_rejects_an_invalid_run_id(ticker: FakeTicker) -> None:
    context = ticker.context_of("run.cancel", {"run_id": run_id(0)})
    invalid = context.command.model_copy(update={"run_id": "yesterday"})

    with pytest.raises(InvalidInput):
        apply_command(ticker.load_unit(), CommandContext("default", invalid, ID, NINE, None))


def test_resume_changes_nothing_when_the_recurrence_raises_an_error(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    record = ticker.record
    when = record.version.definition.when.model_copy(update={"timezone": "Mars/X"})
    ticker.store_definition(1, record.version.definition.model_copy(update={"when": when}))
    ticker.store_record(record._replace(state=ScheduleState.ERRORED, next_at=None))
    unit = ticker.load_unit()

    with pytest.raises(Rejected):
        apply_command(unit, ticker.context_of("schedule.resume", {}))

    assert unit == ticker.load_unit()


def test_put_on_a_cancelled_schedule_stages_its_runs_again() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticker.wait(5).send("schedule.cancel")

    ticker.wait(5).put({"every": "30s", "start": "2026-11-20T09:00:00Z"}, revive=True)

    assert after(30) in ticker.staged_times
    assert after(60) in ticker.staged_times


def test_cancelled_run_stays_cancelled_when_its_schedule_is_planned_again() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticker.wait(5).send("run.cancel", run_id=run_id(30))

    ticker.send("schedule.pause")
    ticker.wait(5).send("schedule.resume")

    assert after(30) not in ticker.staged_times
    assert after(60) in ticker.staged_times
