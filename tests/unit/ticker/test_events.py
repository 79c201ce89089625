"""The events of runs after a commit, which the metrics count too."""

from datetime import UTC, datetime, timedelta

from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason, RunEnd, RunState, SkippedRange
from harebell.messaging.ticket_batches import TicketHeader
from harebell.ticker.events import planning_events, unstaged_run_events
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.run_rows import placement_of
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.plan_writer import SaveResult

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
FIRST, SECOND = (RunKey(NOW + timedelta(minutes=n), ID) for n in (1, 2))


def record() -> ScheduleRecord:
    ticker = FakeTicker(NOW)
    ticker.put({"every": "1m"})
    assert ticker.stored_record is not None
    return ticker.stored_record


def saved(*steps: PlanningStep, restaged: RunKey | None = None) -> SaveResult:
    tickets = (
        []
        if restaged is None
        else [TicketHeader(restaged, 3, NOW, "default", Lane.NORMAL, 5, b"{}")]
    )
    return SaveResult(tickets, steps, [])


def test_run_that_is_unstaged_and_staged_in_one_batch_has_no_event() -> None:
    unit = UnitOfWork(schedules={ID: record()})
    unit.cancelled_runs = {FIRST: Reason.SUPERSEDED, SECOND: Reason.SUPERSEDED}

    (event,) = unstaged_run_events(unit, saved(restaged=FIRST), NOW)

    assert event.event["subject"] == str(SECOND)
    assert event.end == RunEnd(RunState.CANCELLED, Reason.SUPERSEDED)


def test_resolved_run_has_an_event_unless_it_is_retried() -> None:
    unit = UnitOfWork(schedules={ID: record()})
    unit.resolved_runs = {FIRST: RunState.SKIPPED, SECOND: RunState.STAGED}

    (event,) = unstaged_run_events(unit, saved(), NOW)

    assert event.verb == "run.skipped"
    assert event.end == RunEnd(RunState.SKIPPED, Reason.MANUAL)


def test_skipped_range_counts_each_of_its_times() -> None:
    schedule = record()
    placement = placement_of(schedule.version)
    missed = SkippedRange(
        key=FIRST,
        placement=placement,
        until=NOW + timedelta(hours=9),
        count=540,
        reason=Reason.MISSED,
    )
    step = PlanningStep(previous=schedule, record=schedule, skipped=[missed])

    (event,) = planning_events(saved(step), NOW)

    assert event.end == RunEnd(RunState.SKIPPED, Reason.MISSED, 540)
