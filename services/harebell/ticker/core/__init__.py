"""What a command does to the book: the rules, one module a kind. Pure."""

from collections.abc import Callable
from typing import Final, TypeAlias

from harebell.contract.answers import BulkResponse, RunResponse, ScheduleResponse
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
from harebell.ticker.book import ScheduleRecord, UnitOfWork
from harebell.ticker.core.asked import CommandContext, find_schedule
from harebell.ticker.core.defining import patch, put
from harebell.ticker.core.instants import backfill, cancel_run, resolve_run, skip, trigger
from harebell.ticker.core.selecting import BULK_HANDLERS

__all__ = ["Response", "CommandContext", "apply_command"]

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
