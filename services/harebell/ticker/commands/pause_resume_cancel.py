"""Pausing, resuming, cancelling."""

from harebell.contract.commands import ScheduleCommand, SchedulePause
from harebell.contract.errors import Conflict
from harebell.contract.responses import ScheduleResponse
from harebell.domain.planner import MISSED_AFTER
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.responses import schedule_response
from harebell.ticker.model.planning_cursor import resume_planning
from harebell.ticker.model.request import CommandContext
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import VersionStatus


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
            VersionStatus.SUPERSEDED,
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
