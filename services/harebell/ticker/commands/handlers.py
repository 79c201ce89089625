"""The handler of each command, which changes the unit of work and returns the response."""

from collections.abc import Callable
from typing import Final, TypeAlias

from harebell.contract.calendar import CalendarDelete, CalendarPut, CalendarResponse
from harebell.contract.commands import (
    RunCancel,
    RunResolve,
    ScheduleBackfill,
    ScheduleCommand,
    ScheduleDelete,
    SchedulePatch,
    SchedulePut,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import Rejected
from harebell.contract.responses import BulkResponse, RunResponse, ScheduleResponse
from harebell.ticker.commands.bulk import BULK_HANDLERS
from harebell.ticker.commands.calendars import delete_calendar, put_calendar
from harebell.ticker.commands.ended import delete
from harebell.ticker.commands.manual_runs import backfill, cancel_run, resolve_run, skip, trigger
from harebell.ticker.commands.put_patch import patch, put
from harebell.ticker.model.request import CommandContext, find_schedule
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork

__all__ = ["CommandContext", "Response", "apply_command"]

Response: TypeAlias = ScheduleResponse | RunResponse | BulkResponse | CalendarResponse

_HANDLERS: Final[
    dict[type, Callable[[UnitOfWork, CommandContext, ScheduleRecord], ScheduleResponse]]
] = {
    **BULK_HANDLERS,
    ScheduleDelete: delete,
    ScheduleTrigger: trigger,
    ScheduleSkip: skip,
    ScheduleBackfill: backfill,
}


def apply_command(  # noqa: PLR0911  # one case for each command
    unit: UnitOfWork, context: CommandContext
) -> ScheduleResponse | RunResponse | CalendarResponse:
    """Apply one command to the unit of work. Raise `Rejected` and change nothing on an error."""
    match context.command:
        case SchedulePut() as command:
            return put(unit, context, command)
        case SchedulePatch() as command:
            return patch(unit, context, command)
        case RunCancel() as command:
            return cancel_run(unit, context, command)
        case RunResolve() as command:
            return resolve_run(unit, context, command)
        case CalendarPut() as command:
            return put_calendar(unit, context, command)
        case CalendarDelete() as command:
            return delete_calendar(unit, context, command)
        case ScheduleCommand() as command:
            return _HANDLERS[type(command)](unit, context, find_schedule(unit, context))
        case command:
            name = type(command).__name__
            raise Rejected(
                f"The command must be a schedule or run command, not {name}.",
                code="unknown_command",
            )
