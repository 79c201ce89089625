"""One command to many schedules, and the receipt by which the same ones can be named again."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from harebell.contract.addressed import Addressed
from harebell.contract.answers import ScheduleAnswer, SelectionAnswer
from harebell.contract.commands import (
    ScheduleCancel,
    SchedulePause,
    ScheduleResume,
    SelectingCommand,
)
from harebell.contract.errors import Rejected
from harebell.kernel.ledger import ScheduleState
from harebell.ticker.book import Book, Entry
from harebell.ticker.core.asked import Asked, known
from harebell.ticker.core.halting import cancel, pause, resume

Verb: TypeAlias = Callable[[Book, Asked, Entry], ScheduleAnswer]

VERBS: Final[dict[type, Verb]] = {
    SchedulePause: pause,
    ScheduleResume: resume,
    ScheduleCancel: cancel,
}


def is_selecting(command: Addressed) -> bool:
    return isinstance(command, SelectingCommand) and (
        command.select is not None or command.receipt is not None
    )


def apply_to_all(
    book: Book, asked: Asked, schedules: Sequence[UUID], receipt: str
) -> SelectionAnswer:
    """Each that the command changes is in the receipt; what it could not change is told why."""
    verb = VERBS[type(asked.command)]
    changed: list[UUID] = []
    in_flight: list[str] = []
    refused: dict[str, str] = {}
    for id_ in schedules:
        one = asked._replace(schedule_id=id_)
        try:
            entry = known(book, one)
            if _is_so_already(entry, asked):
                continue
            told = verb(book, one, entry)
        except Rejected as error:
            refused[str(id_)] = error.reason
        else:
            changed.append(id_)
            in_flight += told.in_flight
    return SelectionAnswer(receipt=receipt, changed=changed, refused=refused, in_flight=in_flight)


def _is_so_already(entry: Entry, asked: Asked) -> bool:
    match asked.command:
        case SchedulePause():
            return entry.state is ScheduleState.PAUSED
        case ScheduleCancel():
            return entry.state is ScheduleState.CANCELLED
        case _:
            return entry.standing(asked.accepted_at) is ScheduleState.ACTIVE
