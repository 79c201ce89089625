"""Pausing, resuming, cancelling."""

from harebell.contract.answers import ScheduleResponse
from harebell.contract.commands import ScheduleCommand, SchedulePause
from harebell.contract.errors import Conflict
from harebell.kernel.ledger import Reason, ScheduleState
from harebell.kernel.occurrences import MISSED_AFTER
from harebell.ticker.book import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.core.answering import schedule_response
from harebell.ticker.core.asked import CommandContext
from harebell.ticker.version import VersionStatus


def pause(book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord) -> ScheduleResponse:
    is_over = entry.state is ScheduleState.COMPLETED and not book.open_runs_of(entry)
    if is_over or entry.state is ScheduleState.CANCELLED:
        raise Conflict(f"is {entry.state}", code="not_active")
    until = asked.command.until if isinstance(asked.command, SchedulePause) else None
    claimed = book.claimed_runs(entry)
    book.request_stop(claimed, Reason.PAUSED)
    withdrawn = book.unstage(book.drop_manual_runs(entry, Reason.PAUSED), Reason.PAUSED)
    paused = withdrawn._replace(paused_until=until)
    return _halt(book, asked, paused, ScheduleState.PAUSED, claimed)


def cancel(book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord) -> ScheduleResponse:
    """For good: also what waits for a retry, and the change that waits for its time."""
    claimed = book.claimed_runs(entry)
    book.request_stop(claimed, Reason.CANCELLED)
    kept = book.drop_manual_runs(entry, Reason.CANCELLED)
    withdrawn = book.unstage(kept, Reason.CANCELLED, begun=True)
    if entry.pending is not None:
        book.version_statuses[entry.id, entry.pending.number] = (
            VersionStatus.SKIPPED,
            "the schedule was cancelled",
        )
    cancelled = withdrawn._replace(pending=None, paused_until=None, awaited_run=None)
    return _halt(book, asked, cancelled, ScheduleState.CANCELLED, claimed)


def _halt(
    book: UnitOfWork,
    asked: CommandContext,
    entry: ScheduleRecord,
    state: ScheduleState,
    claimed: list[LockedRun],
) -> ScheduleResponse:
    note = asked.command.note if isinstance(asked.command, ScheduleCommand) else None
    halted = entry._replace(
        state=state,
        next_at=entry.paused_until,
        changed_at=asked.accepted_at,
        reason=note,
    )
    return schedule_response(book.update(halted), state.value, asked.accepted_at, claimed)


def resume(book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord) -> ScheduleResponse:
    """From where planning stood: the catch-up policy decides about the gap."""
    if entry.visible_state(asked.accepted_at) is ScheduleState.ACTIVE:
        return schedule_response(entry, "resumed", asked.accepted_at)
    if entry.state not in (ScheduleState.PAUSED, ScheduleState.ERRORED):
        raise Conflict(f"is {entry.state}", code="not_paused")
    resumed = resume_planning(entry._replace(changed_at=asked.accepted_at))
    book.request_stop(book.claimed_runs(entry), None)
    cursor = max(entry.planned_until, asked.accepted_at - MISSED_AFTER)
    return schedule_response(book.update(resumed), "resumed", cursor)


def resume_planning(entry: ScheduleRecord) -> ScheduleRecord:
    """As it goes on after a pause or a hold; failures are counted afresh.

    What a version before owed and a pause took back is owed again: no timetable brings it.
    """
    past = (
        run for run in entry.open_runs if run <= entry.planned_until and run != entry.awaited_run
    )
    mine = (run for run in past if entry.version_at(run) is entry.version)
    again = tuple(run for run in mine if not entry.version.includes(run))
    return continue_planning(entry)._replace(paused_until=None, failures=0, to_restage=again)


def continue_planning(entry: ScheduleRecord) -> ScheduleRecord:
    """Active from where planning stands, unless nothing is left to come."""
    awaited = entry.awaited_run if entry.awaited_run in entry.open_runs else None
    instants = [None if awaited else entry.next_time, entry.pending_at]
    next_at = min(filter(None, instants), default=None)
    return entry._replace(
        state=ScheduleState.ACTIVE if next_at or awaited else ScheduleState.COMPLETED,
        next_at=next_at,
        awaited_run=awaited,
        reason=None,
    )
