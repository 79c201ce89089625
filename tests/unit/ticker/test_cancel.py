"""Cancelling schedules and runs, and triggering runs beside the timetable."""

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
TICK = 0.001


@pytest.fixture
def ticking() -> FakeTicker:
    """Runs staged at nine, and every half minute."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    return ticking


def run_id(seconds: float) -> str:
    return str(RunKey(after(seconds), ID))


@pytest.mark.requirement("S33")
def test_cancelled_nothing_that_has_not_started_ever_starts(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    ticking.complete(NINE, RunState.RETRYING)

    answer = ticking.wait(1).send("schedule.cancel")
    ticking.wait(600).stage_all()

    assert (answer.state, ticking.record.next_at) == ("cancelled", None)
    assert ticking.times_in(RunState.CANCELLED) == [NINE, after(30), after(60)]
    assert {row.reason for row in ticking.rows.values()} == {Reason.CANCELLED}


@pytest.mark.requirement("S33")
def test_a_run_in_flight_is_told_and_named(ticking: FakeTicker) -> None:
    ticking.claim(NINE, started=True)

    answer = ticking.send("schedule.cancel")

    assert isinstance(answer, ScheduleResponse)
    assert answer.in_flight == [run_id(0)]
    assert ticking.rows[RunKey(NINE, ID)].reason == Reason.CANCELLED


@pytest.mark.requirement("S33")
def test_put_and_cancel_without_waiting_is_cancelled() -> None:
    ticking = FakeTicker(NINE)

    ticking.send_all(
        ("schedule.put", {"key": "k", "when": EVERY, "target": TASK}), ("schedule.cancel", {})
    )

    assert (ticking.record.state, ticking.staged_times) == (ScheduleState.CANCELLED, [])


@pytest.mark.requirement("S33")
def test_an_overdue_run_that_a_put_renewed_is_cancelled_by_the_cancel_behind_it(
    ticking: FakeTicker,
) -> None:
    put = {"key": "k", "when": {"every": "1h"}, "target": TASK, "expected_version": "any"}

    ticking.wait(10).send_all(("schedule.put", put), ("schedule.cancel", {}))

    assert ticking.staged_times == []


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("pause", "paused")])
def test_a_trigger_that_is_withdrawn_before_it_was_made_never_runs_and_is_on_the_record(
    ticking: FakeTicker, verb: str, state: str
) -> None:
    ticking.run_due()

    ticking.wait(10).send_all(("schedule.trigger", {}), (f"schedule.{verb}", {}))

    assert (ticking.staged_times, ticking.record.state) == ([], state)
    assert ticking.skipped_counts == {after(10): 1}


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_replayed_run_that_has_not_started_is_withdrawn_by_a_cancellation_alone(
    ticking: FakeTicker, verb: str
) -> None:
    ticking.run_due()
    planned_until = ticking.record.planned_until
    row = ticking.rows[RunKey(NINE, ID)]
    row.state, row.attempt, row.again = RunState.STAGED, 0, True

    ticking.wait(1).send(f"schedule.{verb}")

    assert (row.state is RunState.CANCELLED) is (verb == "cancel")
    assert ticking.record.planned_until >= planned_until - 2 * (after(30) - NINE)


def test_cancelling_twice_is_cancelling_once(ticking: FakeTicker) -> None:
    ticking.send("schedule.cancel")

    answer = ticking.wait(1).send("schedule.cancel")

    assert answer.state == "cancelled"


@pytest.mark.requirement("S18")
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "trigger"])
@pytest.mark.parametrize("tenant", ["default", "other"])
def test_what_is_not_there_and_what_is_anothers_look_the_same(
    verb: str, tenant: str, ticking: FakeTicker
) -> None:
    empty = tenant == "default"
    book = FakeTicker(NINE).load_unit() if empty else ticking.load_unit()
    before = FakeTicker(NINE).load_unit() if empty else ticking.load_unit()
    asked = ticking.context_of(f"schedule.{verb}", {})

    with pytest.raises(NotFound) as refused:
        apply_command(book, CommandContext(tenant, asked.command, ID, NINE, None))

    assert refused.value.reason == "there is no such schedule"
    assert book == before


def test_a_command_of_another_service_is_refused(ticking: FakeTicker) -> None:
    command = DeadLetterDiscard.model_validate({"ids": [ID]})

    with pytest.raises(Rejected) as refused:
        apply_command(ticking.load_unit(), CommandContext("default", command, ID, NINE, None))

    assert refused.value.code == "unknown_command"


@pytest.mark.requirement("S01")
def test_a_trigger_is_one_run_at_acceptance_beside_the_timetable(ticking: FakeTicker) -> None:
    ticking.run_due()

    answer = ticking.wait(10).send("schedule.trigger")

    assert isinstance(answer, ScheduleResponse)
    assert (answer.status, answer.run_id) == ("triggered", run_id(10))
    assert ticking.staged_times == [after(10), after(30), after(60), after(90)]


def test_a_trigger_whose_instant_is_taken_gets_the_next_free_one(ticking: FakeTicker) -> None:
    answers = [ticking.send("schedule.trigger") for _ in range(2)]
    ticking.run_due()
    answers.append(ticking.send("schedule.trigger"))

    told = [answer.run_id for answer in answers if isinstance(answer, ScheduleResponse)]
    assert told == [run_id(TICK), run_id(2 * TICK), run_id(3 * TICK)]


def test_triggers_of_one_transaction_are_runs_of_their_own(ticking: FakeTicker) -> None:
    ticking.send_all(*[("schedule.trigger", {})] * 3)

    assert ticking.staged_times[:4] == [NINE, after(TICK), after(2 * TICK), after(3 * TICK)]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_what_is_paused_can_be_triggered_and_what_is_cancelled_cannot(
    ticking: FakeTicker, verb: str
) -> None:
    ticking.send(f"schedule.{verb}")
    ticking.wait(1)

    if verb == "cancel":
        with pytest.raises(Conflict) as refused:
            ticking.send("schedule.trigger")
        assert refused.value.code == "not_active"
    else:
        ticking.send("schedule.trigger")
        assert ticking.staged_times == [after(1)]


@pytest.mark.requirement("S06")
def test_a_triggered_run_does_not_count_as_one_of_times() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 2})
    ticking.run_due()

    ticking.wait(10).send("schedule.trigger")
    ticking.wait(1).send("schedule.pause")
    ticking.wait(1).send("schedule.resume")
    for _ in range(20):
        ticking.wait(10).stage_all().run_due()

    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, after(30)]
    assert ticking.times_in(RunState.CANCELLED) == [after(10)]


@pytest.mark.requirement("S33")
def test_a_run_is_cancelled_alone(ticking: FakeTicker) -> None:
    answer = ticking.send("run.cancel", run_id=run_id(30))

    assert isinstance(answer, RunResponse)
    assert (answer.status, answer.state) == ("cancelled", "cancelled")
    assert ticking.staged_times == [NINE, after(60)]
    assert after(30) not in ticking.record.open_runs


@pytest.mark.requirement("S33")
def test_a_run_that_was_cancelled_alone_does_not_come_back(ticking: FakeTicker) -> None:
    ticking.send("run.cancel", run_id=run_id(30))

    ticking.send_all(("schedule.pause", {}), ("schedule.resume", {}))

    assert ticking.staged_times == [NINE, after(60)]


@pytest.mark.requirement("S33", "S107")
def test_a_run_that_waits_for_a_retry_is_cancelled(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    ticking.complete(NINE, RunState.RETRYING)

    answer = ticking.send("run.cancel", run_id=run_id(0))

    assert answer.state == "cancelled"
    assert ticking.times_in(RunState.RETRYING) == []


@pytest.mark.requirement("S33")
def test_a_run_that_was_claimed_is_asked_to_stop(ticking: FakeTicker) -> None:
    ticking.claim(NINE)

    answer = ticking.send("run.cancel", run_id=run_id(0))

    assert isinstance(answer, RunResponse)
    assert (answer.status, answer.state) == ("in_flight", "running")
    assert ticking.rows[RunKey(NINE, ID)].reason == Reason.CANCELLED


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("seconds", [0, 31, 3600])
def test_a_run_that_has_ended_or_never_was_cannot_be_cancelled(
    ticking: FakeTicker, seconds: int
) -> None:
    ticking.run_due()
    before = ticking.load_unit()

    with pytest.raises(NotFound) as refused:
        ticking.send("run.cancel", run_id=run_id(seconds))

    assert refused.value.field == "run_id"
    assert ticking.load_unit() == before


@pytest.mark.requirement("S33")
def test_what_is_no_run_id_is_refused(ticking: FakeTicker) -> None:
    command = ticking.context_of("run.cancel", {"run_id": run_id(0)})
    wrong = command.command.model_copy(update={"run_id": "yesterday's"})

    with pytest.raises(InvalidInput):
        apply_command(ticking.load_unit(), CommandContext("default", wrong, ID, NINE, None))


def test_resuming_what_cannot_be_computed_leaves_the_book_as_it_was(ticking: FakeTicker) -> None:
    ticking.claim(NINE)
    entry = ticking.record
    broken = entry.version.definition.model_copy(
        update={"when": entry.version.definition.when.model_copy(update={"timezone": "Mars/X"})}
    )
    parked = type(entry.version).create(ID, 1, tenant="default", definition=broken, at=NINE)
    ticking.stored_record = type(entry)(
        parked, ScheduleState.ERRORED, entry.planned_until, NINE, open_runs=entry.open_runs
    )
    book = ticking.load_unit()

    with pytest.raises(Rejected):
        apply_command(book, ticking.context_of("schedule.resume", {}))

    assert book == ticking.load_unit()


def test_what_a_cancel_withdrew_runs_again_once_a_put_revives_the_schedule() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticking.wait(5).send("schedule.cancel")

    ticking.wait(5).put({"every": "30s", "start": "2026-11-20T09:00:00Z"}, expected_version="any")

    assert after(30) in ticking.staged_times
    assert after(60) in ticking.staged_times


def test_a_run_cancelled_by_itself_stays_so_when_its_schedule_is_planned_again() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticking.wait(5).send("run.cancel", run_id=run_id(30))

    ticking.send("schedule.pause")
    ticking.wait(5).send("schedule.resume")

    assert after(30) not in ticking.staged_times
    assert after(60) in ticking.staged_times
