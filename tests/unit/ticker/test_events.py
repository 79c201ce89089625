"""What is told of runs after a commit, which is also what is counted."""

from datetime import UTC, datetime, timedelta

from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason, RunEnd, RunState, SkippedRange
from harebell.messaging.ticket_batches import TicketHeader
from harebell.ticker.events import planning_events, unstaged_run_events
from harebell.ticker.model import planning
from harebell.ticker.model.run_rows import placement_of
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.store.save import SaveResult

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
FIRST, SECOND = (RunKey(NOW + timedelta(minutes=n), ID) for n in (1, 2))


def entry() -> ScheduleRecord:
    ticking = FakeTicker(NOW)
    ticking.put({"every": "1m"})
    assert ticking.stored_record is not None
    return ticking.stored_record


def saved(*advances: planning.PlanningStep, again: RunKey | None = None) -> SaveResult:
    tickets = (
        [] if again is None else [TicketHeader(again, 3, NOW, "default", Lane.NORMAL, 5, b"{}")]
    )
    return SaveResult(tickets, advances, [])


def test_what_is_withdrawn_and_owed_again_in_one_go_has_not_ended() -> None:
    book = UnitOfWork(schedules={ID: entry()})
    book.cancelled_runs = {FIRST: Reason.SUPERSEDED, SECOND: Reason.SUPERSEDED}

    (fact,) = unstaged_run_events(book, saved(again=FIRST), NOW)

    assert fact.event["subject"] == str(SECOND)
    assert fact.end == RunEnd(RunState.CANCELLED, Reason.SUPERSEDED)


def test_a_held_run_that_a_person_resolved_has_ended_and_one_to_be_tried_again_has_not() -> None:
    book = UnitOfWork(schedules={ID: entry()})
    book.resolved_runs = {FIRST: RunState.SKIPPED, SECOND: RunState.STAGED}

    (fact,) = unstaged_run_events(book, saved(), NOW)

    assert fact.verb == "run.skipped"
    assert fact.end == RunEnd(RunState.SKIPPED, Reason.MANUAL)


def test_a_row_that_stands_for_many_instants_counts_each() -> None:
    standing = entry()
    place = placement_of(standing.version)
    missed = SkippedRange(
        key=FIRST, placement=place, until=NOW + timedelta(hours=9), count=540, reason=Reason.MISSED
    )

    (fact,) = planning_events(
        saved(planning.PlanningStep(standing, standing, skipped=[missed])), NOW
    )

    assert fact.end == RunEnd(RunState.SKIPPED, Reason.MISSED, 540)
