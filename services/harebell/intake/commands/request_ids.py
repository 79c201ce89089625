"""By what a command is recognised when it comes again, and which schedule it is for."""

from dataclasses import dataclass
from uuid import UUID

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    BulkCommand,
    ReplayJobStart,
    RunCancel,
    RunResolve,
    ScheduleBackfill,
    ScheduleCommand,
    SchedulePut,
    ScheduleTrigger,
)
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey, schedule_id, schedule_id_of_request


@dataclass(frozen=True, slots=True)
class CommandPosition:
    """Where a command stood: `index` is its place in an array, None outside one."""

    tenant: str
    message_id: str | None
    index: int | None


def request_id_of(command: CommandBase, origin: CommandPosition) -> str | None:
    """What makes a retry recognisable; required where a repeat would do something else."""
    if is_bulk(command) and origin.index is not None and command.request_id is None:
        reason = "is required in an array: the receipt is called by it"
        raise InvalidInput(reason, field="request_id", code="missing_request_id")
    request_id = command.request_id or origin.message_id
    if request_id is None and _needs_request_id(command):
        reason = "give a request_id, or the message a message_id, so that a retry is recognised"
        raise InvalidInput(reason, field="request_id", code="missing_request_id")
    return request_id


def schedule_id_of(
    command: CommandBase, request_id: str | None, origin: CommandPosition
) -> UUID | None:
    """None where the command is for none, or for those that a selector or a receipt names."""
    match command:
        case SchedulePut(key=str(key)) | ScheduleCommand(key=str(key)):
            return schedule_id(origin.tenant, key)
        case SchedulePut() if request_id is not None:
            return schedule_id_of_request(origin.tenant, request_id, origin.index)
        case ScheduleCommand(id=UUID() as given):
            return given  # whether it is this tenant's is for its owner to say
        case RunCancel(run_id=run) | RunResolve(run_id=run):
            return RunKey.parse(run).schedule_id
        case _:
            return None


def is_bulk(command: CommandBase) -> bool:
    return isinstance(command, BulkCommand) and (command.key or command.id) is None


def _needs_request_id(command: CommandBase) -> bool:
    if isinstance(command, SchedulePut):
        return command.key is None
    repeated = isinstance(command, ScheduleTrigger | ScheduleBackfill | ReplayJobStart)
    return repeated or is_bulk(command)
