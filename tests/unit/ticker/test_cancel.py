"""Cancelling schedules and runs, and triggering runs beside the timetable."""

import pytest
from tests.fakes.schedules import ID, TASK
from tests.fakes.ticker import Ticking
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
def ticking() -> Ticking:
    """Runs staged at nine, and every half minute."""
    ticking = Ticking(NINE)
    ticking.put(EVERY)
    return ticking


def run_id(seconds: float) -> str:
    return str(RunKey(after(seconds), ID))


@pytest.mark.requirement("S33")
def test_cancelled_nothing_that_has_not_started_ever_starts(ticking: Ticking) -> None:
    ticking.claim(NINE)
    ticking.end(NINE, RunState.RETRYING)

    answer = ticking.wait(1).ask("schedule.cancel")
    ticking.wait(600).look()

    assert (answer.state, ticking.kept.next_at) == ("cancelled", None)
    assert ticking.having(RunState.CANCELLED) == [NINE, after(30), after(60)]
    assert {row.reason for row in ticking.rows.values()} == {Reason.CANCELLED}


@pytest.mark.requirement("S33")
def test_a_run_in_flight_is_told_and_named(ticking: Ticking) -> None:
    ticking.claim(NINE, started=True)

    answer = ticking.ask("schedule.cancel")

    assert isinstance(answer, ScheduleResponse)
    assert answer.in_flight == [run_id(0)]
    assert ticking.rows[RunKey(NINE, ID)].reason is Reason.CANCELLED


@pytest.mark.requirement("S33")
def test_put_and_cancel_without_waiting_is_cancelled() -> None:
    ticking = Ticking(NINE)

    ticking.ask_all(
        ("schedule.put", {"key": "k", "when": EVERY, "target": TASK}), ("schedule.cancel", {})
    )

    assert (ticking.kept.state, ticking.staged) == (ScheduleState.CANCELLED, [])


@pytest.mark.requirement("S33")
def test_an_overdue_run_that_a_put_renewed_is_cancelled_by_the_cancel_behind_it(
    ticking: Ticking,
) -> None:
    put = {"key": "k", "when": {"every": "1h"}, "target": TASK, "expected_version": "any"}

    ticking.wait(10).ask_all(("schedule.put", put), ("schedule.cancel", {}))

    assert ticking.staged == []


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("pause", "paused")])
def test_a_trigger_that_is_withdrawn_before_it_was_made_never_runs_and_is_on_the_record(
    ticking: Ticking, verb: str, state: str
) -> None:
    ticking.run_due()

    ticking.wait(10).ask_all(("schedule.trigger", {}), (f"schedule.{verb}", {}))

    assert (ticking.staged, ticking.kept.state) == ([], state)
    assert ticking.skipped == {after(10): 1}


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_replayed_run_that_has_not_started_is_withdrawn_by_a_cancellation_alone(
    ticking: Ticking, verb: str
) -> None:
    ticking.run_due()
    planned_until = ticking.kept.planned_until
    row = ticking.rows[RunKey(NINE, ID)]
    row.state, row.attempt, row.again = RunState.STAGED, 0, True

    ticking.wait(1).ask(f"schedule.{verb}")

    assert (row.state is RunState.CANCELLED) is (verb == "cancel")
    assert ticking.kept.planned_until >= planned_until - 2 * (after(30) - NINE)


def test_cancelling_twice_is_cancelling_once(ticking: Ticking) -> None:
    ticking.ask("schedule.cancel")

    answer = ticking.wait(1).ask("schedule.cancel")

    assert answer.state == "cancelled"


@pytest.mark.requirement("S18")
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "trigger"])
@pytest.mark.parametrize("tenant", ["default", "other"])
def test_what_is_not_there_and_what_is_anothers_look_the_same(
    verb: str, tenant: str, ticking: Ticking
) -> None:
    empty = tenant == "default"
    book = Ticking(NINE).book() if empty else ticking.book()
    before = Ticking(NINE).book() if empty else ticking.book()
    asked = ticking.asked(f"schedule.{verb}", {})

    with pytest.raises(NotFound) as refused:
        apply_command(book, CommandContext(tenant, asked.command, ID, NINE, None))

    assert refused.value.reason == "there is no such schedule"
    assert book == before


def test_a_command_of_another_service_is_refused(ticking: Ticking) -> None:
    command = DeadLetterDiscard.model_validate({"ids": [ID]})

    with pytest.raises(Rejected) as refused:
        apply_command(ticking.book(), CommandContext("default", command, ID, NINE, None))

    assert refused.value.code == "unknown_command"


@pytest.mark.requirement("S01")
def test_a_trigger_is_one_run_at_acceptance_beside_the_timetable(ticking: Ticking) -> None:
    ticking.run_due()

    answer = ticking.wait(10).ask("schedule.trigger")

    assert isinstance(answer, ScheduleResponse)
    assert (answer.status, answer.run_id) == ("triggered", run_id(10))
    assert ticking.staged == [after(10), after(30), after(60), after(90)]


def test_a_trigger_whose_instant_is_taken_gets_the_next_free_one(ticking: Ticking) -> None:
    answers = [ticking.ask("schedule.trigger") for _ in range(2)]
    ticking.run_due()
    answers.append(ticking.ask("schedule.trigger"))

    told = [answer.run_id for answer in answers if isinstance(answer, ScheduleResponse)]
    assert told == [run_id(TICK), run_id(2 * TICK), run_id(3 * TICK)]


def test_triggers_of_one_transaction_are_runs_of_their_own(ticking: Ticking) -> None:
    ticking.ask_all(*[("schedule.trigger", {})] * 3)

    assert ticking.staged[:4] == [NINE, after(TICK), after(2 * TICK), after(3 * TICK)]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_what_is_paused_can_be_triggered_and_what_is_cancelled_cannot(
    ticking: Ticking, verb: str
) -> None:
    ticking.ask(f"schedule.{verb}")
    ticking.wait(1)

    if verb == "cancel":
        with pytest.raises(Conflict) as refused:
            ticking.ask("schedule.trigger")
        assert refused.value.code == "not_active"
    else:
        ticking.ask("schedule.trigger")
        assert ticking.staged == [after(1)]


@pytest.mark.requirement("S06")
def test_a_triggered_run_does_not_count_as_one_of_times() -> None:
    ticking = Ticking(NINE)
    ticking.put({**EVERY, "times": 2})
    ticking.run_due()

    ticking.wait(10).ask("schedule.trigger")
    ticking.wait(1).ask("schedule.pause")
    ticking.wait(1).ask("schedule.resume")
    for _ in range(20):
        ticking.wait(10).look().run_due()

    assert ticking.having(RunState.SUCCEEDED) == [NINE, after(30)]
    assert ticking.having(RunState.CANCELLED) == [after(10)]


@pytest.mark.requirement("S33")
def test_a_run_is_cancelled_alone(ticking: Ticking) -> None:
    answer = ticking.ask("run.cancel", run_id=run_id(30))

    assert isinstance(answer, RunResponse)
    assert (answer.status, answer.state) == ("cancelled", "cancelled")
    assert ticking.staged == [NINE, after(60)]
    assert after(30) not in ticking.kept.open_runs


@pytest.mark.requirement("S33")
def test_a_run_that_was_cancelled_alone_does_not_come_back(ticking: Ticking) -> None:
    ticking.ask("run.cancel", run_id=run_id(30))

    ticking.ask_all(("schedule.pause", {}), ("schedule.resume", {}))

    assert ticking.staged == [NINE, after(60)]


@pytest.mark.requirement("S33", "S107")
def test_a_run_that_waits_for_a_retry_is_cancelled(ticking: Ticking) -> None:
    ticking.claim(NINE)
    ticking.end(NINE, RunState.RETRYING)

    answer = ticking.ask("run.cancel", run_id=run_id(0))

    assert answer.state == "cancelled"
    assert ticking.having(RunState.RETRYING) == []


@pytest.mark.requirement("S33")
def test_a_run_that_was_claimed_is_asked_to_stop(ticking: Ticking) -> None:
    ticking.claim(NINE)

    answer = ticking.ask("run.cancel", run_id=run_id(0))

    assert isinstance(answer, RunResponse)
    assert (answer.status, answer.state) == ("in_flight", "running")
    assert ticking.rows[RunKey(NINE, ID)].reason is Reason.CANCELLED


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("seconds", [0, 31, 3600])
def test_a_run_that_has_ended_or_never_was_cannot_be_cancelled(
    ticking: Ticking, seconds: int
) -> None:
    ticking.run_due()
    before = ticking.book()

    with pytest.raises(NotFound) as refused:
        ticking.ask("run.cancel", run_id=run_id(seconds))

    assert refused.value.field == "run_id"
    assert ticking.book() == before


@pytest.mark.requirement("S33")
def test_what_is_no_run_id_is_refused(ticking: Ticking) -> None:
    command = ticking.asked("run.cancel", {"run_id": run_id(0)})
    wrong = command.command.model_copy(update={"run_id": "yesterday's"})

    with pytest.raises(InvalidInput):
        apply_command(ticking.book(), CommandContext("default", wrong, ID, NINE, None))


def test_resuming_what_cannot_be_computed_leaves_the_book_as_it_was(ticking: Ticking) -> None:
    ticking.claim(NINE)
    entry = ticking.kept
    broken = entry.version.definition.model_copy(
        update={"when": entry.version.definition.when.model_copy(update={"timezone": "Mars/X"})}
    )
    parked = type(entry.version).create(ID, 1, tenant="default", definition=broken, at=NINE)
    ticking.entry = type(entry)(
        parked, ScheduleState.ERRORED, entry.planned_until, NINE, open_runs=entry.open_runs
    )
    book = ticking.book()

    with pytest.raises(Rejected):
        apply_command(book, ticking.asked("schedule.resume", {}))

    assert book == ticking.book()


def test_what_a_cancel_withdrew_runs_again_once_a_put_revives_the_schedule() -> None:
    ticking = Ticking(NINE)
    ticking.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticking.wait(5).ask("schedule.cancel")

    ticking.wait(5).put({"every": "30s", "start": "2026-11-20T09:00:00Z"}, expected_version="any")

    assert after(30) in ticking.staged
    assert after(60) in ticking.staged


def test_a_run_cancelled_by_itself_stays_so_when_its_schedule_is_planned_again() -> None:
    ticking = Ticking(NINE)
    ticking.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticking.wait(5).ask("run.cancel", run_id=run_id(30))

    ticking.ask("schedule.pause")
    ticking.wait(5).ask("schedule.resume")

    assert after(30) not in ticking.staged
    assert after(60) in ticking.staged
