"""One command to many schedules, and the receipt by which the same ones can be named again."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    BulkCommand,
    ScheduleCancel,
    SchedulePause,
    ScheduleResume,
)
from harebell.contract.errors import Rejected
from harebell.contract.responses import BulkResponse, ScheduleResponse
from harebell.domain.run_states import ScheduleState
from harebell.ticker.commands.pause_resume_cancel import cancel, pause, resume
from harebell.ticker.model.request import CommandContext, find_schedule
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork

Verb: TypeAlias = Callable[[UnitOfWork, CommandContext, ScheduleRecord], ScheduleResponse]

BULK_HANDLERS: Final[dict[type, Verb]] = {
    SchedulePause: pause,
    ScheduleResume: resume,
    ScheduleCancel: cancel,
}


def is_bulk(command: CommandBase) -> bool:
    return isinstance(command, BulkCommand) and (
        command.select is not None or command.bulk_operation_id is not None
    )


def apply_bulk(
    book: UnitOfWork, asked: CommandContext, schedules: Sequence[UUID], receipt: str
) -> BulkResponse:
    """Each that the command changes is in the receipt; what it could not change is told why."""
    verb = BULK_HANDLERS[type(asked.command)]
    changed: list[UUID] = []
    in_flight: list[str] = []
    refused: dict[str, str] = {}
    for id_ in schedules:
        one = asked._replace(schedule_id=id_)
        try:
            entry = find_schedule(book, one)
            if _is_so_already(entry, asked):
                continue
            told = verb(book, one, entry)
        except Rejected as error:
            refused[str(id_)] = error.reason
        else:
            changed.append(id_)
            in_flight += told.in_flight
    return BulkResponse(
        bulk_operation_id=receipt, changed=changed, rejected=refused, in_flight=in_flight
    )


def _is_so_already(entry: ScheduleRecord, asked: CommandContext) -> bool:
    match asked.command:
        case SchedulePause():
            return entry.state is ScheduleState.PAUSED
        case ScheduleCancel():
            return entry.state is ScheduleState.CANCELLED
        case _:
            return entry.visible_state(asked.accepted_at) is ScheduleState.ACTIVE
