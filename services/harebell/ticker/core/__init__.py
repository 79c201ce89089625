"""What a command does to the book: the rules, one module a kind. Pure."""

from collections.abc import Callable
from typing import Final, TypeAlias

from harebell.contract.answers import RunAnswer, ScheduleAnswer, SelectionAnswer
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
from harebell.ticker.book import Book, Entry
from harebell.ticker.core.asked import Asked, known
from harebell.ticker.core.defining import patch, put
from harebell.ticker.core.instants import backfill, cancel_run, resolve_run, skip, trigger
from harebell.ticker.core.selecting import VERBS

__all__ = ["Answer", "Asked", "apply"]

Answer: TypeAlias = ScheduleAnswer | RunAnswer | SelectionAnswer

_VERBS: Final[dict[type, Callable[[Book, Asked, Entry], ScheduleAnswer]]] = {
    **VERBS,
    ScheduleTrigger: trigger,
    ScheduleSkip: skip,
    ScheduleBackfill: backfill,
}


def apply(book: Book, asked: Asked) -> ScheduleAnswer | RunAnswer:
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
            return _VERBS[type(command)](book, asked, known(book, asked))
        case command:
            raise Rejected(f"{type(command).__name__} is not a ticker's", code="unknown_command")
