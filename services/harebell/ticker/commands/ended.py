"""Ended schedules: their rejection, their revival and their deletion."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from harebell.contract.commands import ScheduleDelete
from harebell.contract.errors import Conflict
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.contract.types import instant_text
from harebell.domain.recurrence import Once, initial_cursor
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.new_versions import (
    check_one_shot,
    effective_time,
    in_order_of_effective_times,
    new_version,
    put_in_force,
)
from harebell.ticker.model.planning_window import continue_planning
from harebell.ticker.model.request import CommandContext, schedule_response
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version

SCHEDULE_ENDED: Final = "schedule_ended"


def reject_ended(unit: UnitOfWork, record: ScheduleRecord, *, revive: bool) -> None:
    """Raise `Conflict` for a put of an ended schedule without `revive`."""
    if unit.has_ended(record) and not revive:
        raise _ended(record, field="key")


def _ended(record: ScheduleRecord, *, field: str) -> Conflict:
    return Conflict(
        f"The schedule is {record.state} and would stage no run. To start it again, "
        "set `revive` to true (`--revive`), or delete the schedule before the put.",
        field=field,
        code=SCHEDULE_ENDED,
    )


def change_ended(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, definition: Definition
) -> ScheduleResponse:
    """Give an ended schedule a new version with the same times. The schedule stays ended.

    Raise `Conflict` for other times or for an effective time, which would have no effect.
    """
    if definition.when != record.version.definition.when:
        raise _ended(record, field="set.when")
    if effective_time(context) is not None:
        raise _ended(record, field="effective_at")
    version = new_version(context, definition, number=record.next_number)
    version = replace(version, anchor_at=record.version.anchor)
    changed = record._replace(version=version, changed_at=context.accepted_at)
    put_in_force(unit, record, version, planned_from=record.planned_until)
    return schedule_response(unit.update(changed), "updated", context.accepted_at)


def revive(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, definition: Definition
) -> ScheduleResponse:
    """Start an ended schedule again with a new version."""
    version = new_version(context, definition, number=record.next_number)
    check_one_shot(version)
    version = in_order_of_effective_times(version, after=record.version)
    return start_again(unit, context, record, version=version, status="updated")


def start_again(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    version: Version,
    status: str,
) -> ScheduleResponse:
    """Put a version in force for an ended or deleted schedule, which then starts like a new one.

    The rows of earlier runs remain, and a scheduled time with such a row gets no second run. The
    counts include these runs.
    """
    cursor = initial_cursor(version.recurrence, version.since)
    _check_next_time(unit, version, version.recurrence.next_after(cursor))
    claimed = unit.claimed_runs(record)
    started = ScheduleRecord(
        version,
        ScheduleState.ACTIVE,
        planned_until=cursor,
        changed_at=context.accepted_at,
        open_runs=record.open_runs,
        last_number=record.last_number,
        executions=record.executions,
        failures=record.failures,
        last_run=record.last_run,
    )
    started = continue_planning(started)
    put_in_force(unit, record, version, planned_from=cursor)
    return schedule_response(unit.update(started), status, cursor, in_flight=claimed)


def _check_next_time(unit: UnitOfWork, version: Version, time: datetime | None) -> None:
    """Raise `Conflict` if the schedule would end again without a run."""
    if time is None:
        raise Conflict(
            f"The schedule must have a scheduled time after {instant_text(version.since)}, "
            "because it would end again without a run.",
            field="when",
            code=SCHEDULE_ENDED,
        )
    run = unit.ended_runs.get(RunKey(time, version.schedule_id))
    is_unstaged = run is not None and run.state is RunState.CANCELLED and run.attempt == 0
    if isinstance(version.recurrence, Once) and run is not None and not is_unstaged:
        raise Conflict(
            f"The run of the only time {instant_text(time)} has ended, and a scheduled time "
            "has one run. Choose another time.",
            field="when",
            code=SCHEDULE_ENDED,
        )


def delete(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Remove an ended schedule from the lists. Its versions and its runs stay readable."""
    if not unit.has_ended(record):
        raise Conflict(
            "The schedule must be cancelled or completed, and it is neither. Cancel it first.",
            field="key",
            code="not_ended",
        )
    note = context.command.note if isinstance(context.command, ScheduleDelete) else None
    deleted = record._replace(
        state=ScheduleState.DELETED, next_at=None, changed_at=context.accepted_at, reason=note
    )
    return schedule_response(unit.update(deleted), "deleted", context.accepted_at)
