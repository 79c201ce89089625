"""The handlers that pause, resume and cancel a schedule."""

from collections.abc import Sequence
from datetime import datetime

from harebell.contract.commands import ScheduleCommand, SchedulePause
from harebell.contract.errors import Conflict
from harebell.contract.responses import ScheduleResponse
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.new_versions import supersede
from harebell.ticker.model.planning_window import plan_record, resume_planning
from harebell.ticker.model.request import CommandContext, schedule_response
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version


def pause(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Unstage the unattempted runs and request a stop of the claimed runs."""
    is_over = record.state is ScheduleState.COMPLETED and not unit.open_runs_of(record)
    if is_over or record.state is ScheduleState.CANCELLED:
        raise Conflict(f"The schedule must not be {record.state}.", code="not_active")
    until = context.command.until if isinstance(context.command, SchedulePause) else None
    claimed = unit.claimed_runs(record)
    unit.request_stop(claimed, Reason.PAUSED)
    unstaged = unit.unstage(unit.drop_manual_runs(record, Reason.PAUSED), Reason.PAUSED)
    paused = unstaged._replace(state=ScheduleState.PAUSED, paused_until=until)
    return _stop(unit, context, paused, claimed=claimed)


def cancel(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Cancel every open run, including runs between attempts, and the pending versions."""
    claimed = unit.claimed_runs(record)
    unit.request_stop(claimed, Reason.CANCELLED)
    remaining = unit.drop_manual_runs(record, Reason.CANCELLED)
    unstaged = unit.unstage(remaining, Reason.CANCELLED, include_retrying=True)
    supersede(unit, record.pending, "the schedule was cancelled")
    cancelled = unstaged._replace(
        state=ScheduleState.CANCELLED, pending=(), paused_until=None, awaited_run=None
    )
    return _stop(unit, context, cancelled, claimed=claimed, superseded=record.pending)


def _stop(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    claimed: list[LockedRun],
    superseded: Sequence[Version] = (),
) -> ScheduleResponse:
    note = context.command.note if isinstance(context.command, ScheduleCommand) else None
    stopped = record._replace(
        next_at=record.paused_until, changed_at=context.accepted_at, reason=note
    )
    return schedule_response(
        unit.update(stopped),
        stopped.state.value,
        context.accepted_at,
        in_flight=claimed,
        superseded=superseded,
    )


def resume(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Continue from the planning cursor. The catch-up policy decides about missed times."""
    if record.visible_state is ScheduleState.ACTIVE:
        return schedule_response(record, "resumed", context.accepted_at)
    if record.state not in (ScheduleState.PAUSED, ScheduleState.ERRORED):
        raise Conflict(
            f"The schedule must be paused or errored, not {record.state}.", code="not_paused"
        )
    resumed_at = context.accepted_at
    resumed = resume_planning(record._replace(changed_at=resumed_at), resumed_at)
    unit.request_stop(unit.claimed_runs(record), None)
    cursor = max(record.planned_until, _first_time(resumed, resumed_at) - RESOLUTION)
    return schedule_response(unit.update(resumed), "resumed", cursor)


def _first_time(resumed: ScheduleRecord, resumed_at: datetime) -> datetime:
    """Return the first time that may run: the end of the pause, or a time that is caught up."""
    if resumed.awaited_run is not None:
        return resumed_at
    runs = plan_record(resumed, resumed_at, resumed_at).runs
    return runs[0].scheduled_for if runs else resumed_at
