"""What a command does to the book: the rules, one module a kind. Pure."""

from collections.abc import Callable
from typing import Final, TypeAlias

from harebell.contract.commands import (
    RunCancel,
    RunResolve,
    ScheduleBackfill,
    ScheduleCommand,
    SchedulePatch,
    SchedulePut,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import Rejected
from harebell.contract.responses import BulkResponse, RunResponse, ScheduleResponse
from harebell.ticker.commands.bulk import BULK_HANDLERS
from harebell.ticker.commands.manual_runs import backfill, cancel_run, resolve_run, skip, trigger
from harebell.ticker.commands.put_patch import patch, put
from harebell.ticker.model.request import CommandContext, find_schedule
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork

__all__ = ["CommandContext", "Response", "apply_command"]

Response: TypeAlias = ScheduleResponse | RunResponse | BulkResponse

_VERBS: Final[
    dict[type, Callable[[UnitOfWork, CommandContext, ScheduleRecord], ScheduleResponse]]
] = {
    **BULK_HANDLERS,
    ScheduleTrigger: trigger,
    ScheduleSkip: skip,
    ScheduleBackfill: backfill,
}


def apply_command(book: UnitOfWork, asked: CommandContext) -> ScheduleResponse | RunResponse:
    """Change the book; raises `Rejected` and leaves it as it was when the command cannot be."""
    match asked.command:
        case SchedulePut() as command:
            return put(book, asked, command)
        case SchedulePatch() as command:
            return patch(book, asked, command)
        case RunCancel() as command:
            return cancel_run(book, asked, command)
        case RunResolve() as command:
            return resolve_run(book, asked, command)
        case ScheduleCommand() as command:
            return _VERBS[type(command)](book, asked, find_schedule(book, asked))
        case command:
            raise Rejected(f"{type(command).__name__} is not a ticker's", code="unknown_command")
