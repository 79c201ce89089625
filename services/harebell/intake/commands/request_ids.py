"""Ids of commands: the request id that identifies a repeat, and the schedule id (pure)."""

from dataclasses import dataclass
from uuid import UUID

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    ReplayJobStart,
    RunCancel,
    RunReport,
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
    """The tenant and the message of a command, and its index if the body is an array."""

    tenant: str
    message_id: str | None
    index: int | None


def request_id_of(command: CommandBase, position: CommandPosition) -> str | None:
    """Return the request id of the body, or else the message id.

    Raise `InvalidInput` for a command without both ids whose repeat would have another effect.
    """
    if command.is_bulk and position.index is not None and command.request_id is None:
        reason = (
            "A bulk operation in an array must have a request_id, "
            "because the request_id becomes the id of the bulk operation."
        )
        raise InvalidInput(reason, field="request_id", code="missing_request_id")
    request_id = command.request_id or position.message_id
    if request_id is None and _needs_request_id(command):
        reason = (
            "The command must have a request_id, or its message a message_id, "
            "so that Harebell recognises a retry."
        )
        raise InvalidInput(reason, field="request_id", code="missing_request_id")
    return request_id


def schedule_id_of(
    command: CommandBase, request_id: str | None, position: CommandPosition
) -> UUID | None:
    """Return the id of the schedule, or None for a command that names no schedule.

    The ticker checks whether a given id belongs to the tenant.
    """
    match command:
        case SchedulePut(key=str(key)) | ScheduleCommand(key=str(key)):
            return schedule_id(position.tenant, key)
        case SchedulePut() if request_id is not None:
            return schedule_id_of_request(position.tenant, request_id, position.index)
        case ScheduleCommand(id=UUID() as given):
            return given
        case RunCancel(run_id=run) | RunResolve(run_id=run) | RunReport(run_id=run):
            return RunKey.parse(run).schedule_id
        case _:
            return None


def _needs_request_id(command: CommandBase) -> bool:
    if isinstance(command, SchedulePut):
        return command.key is None
    creates_runs = isinstance(command, ScheduleTrigger | ScheduleBackfill | ReplayJobStart)
    return creates_runs or command.is_bulk
