"""Bulk operations: one command that pauses, resumes or cancels many schedules."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from harebell.contract.commands import ScheduleCancel, SchedulePause, ScheduleResume
from harebell.contract.errors import Rejected
from harebell.contract.responses import BulkResponse, ScheduleResponse
from harebell.contract.views import ScheduledVersion
from harebell.domain.run_states import ScheduleState
from harebell.ticker.commands.pause_resume_cancel import cancel, pause, resume
from harebell.ticker.model.request import CommandContext, find_schedule
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork

ScheduleHandler: TypeAlias = Callable[
    [UnitOfWork, CommandContext, ScheduleRecord], ScheduleResponse
]

BULK_HANDLERS: Final[dict[type, ScheduleHandler]] = {
    SchedulePause: pause,
    ScheduleResume: resume,
    ScheduleCancel: cancel,
}


def apply_bulk(
    unit: UnitOfWork,
    context: CommandContext,
    schedules: Sequence[UUID],
    *,
    bulk_operation_id: str,
) -> BulkResponse:
    """Apply the command to each schedule.

    The response contains the changed schedules, and the reason for each rejected schedule.
    """
    handler = BULK_HANDLERS[type(context.command)]
    changed: list[UUID] = []
    in_flight: list[str] = []
    rejected: dict[str, str] = {}
    supersedes: dict[str, list[ScheduledVersion]] = {}
    for schedule_id in schedules:
        of_schedule = context._replace(schedule_id=schedule_id)
        try:
            record = find_schedule(unit, of_schedule)
            if _needs_no_change(record, context):
                continue
            response = handler(unit, of_schedule, record)
        except Rejected as error:
            rejected[str(schedule_id)] = error.reason
        else:
            changed.append(schedule_id)
            in_flight += response.in_flight
            if response.supersedes:
                supersedes[str(schedule_id)] = response.supersedes
    return BulkResponse(
        bulk_operation_id=bulk_operation_id,
        changed=changed,
        rejected=rejected,
        in_flight=in_flight,
        supersedes=supersedes,
    )


def _needs_no_change(record: ScheduleRecord, context: CommandContext) -> bool:
    match context.command:
        case SchedulePause():
            return record.state is ScheduleState.PAUSED
        case ScheduleCancel():
            return record.state is ScheduleState.CANCELLED
        case _:
            return record.visible_state is ScheduleState.ACTIVE
