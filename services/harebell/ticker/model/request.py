"""A checked command on its way into the book, and the schedule that it is about."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from harebell.contract.command_base import CommandBase
from harebell.contract.errors import Conflict, NotFound
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork


class CommandContext(NamedTuple):
    """One command, and who asked when. `schedule_id` None: it selects schedules."""

    tenant: str
    command: CommandBase
    schedule_id: UUID | None
    accepted_at: datetime
    actor: str | None
    applied_at: datetime | None = None  # when a ticker came to it; None: at once


def find_schedule(book: UnitOfWork, asked: CommandContext) -> ScheduleRecord:
    """Raises `NotFound`, and `Conflict` for what has been overtaken."""
    entry = None if asked.schedule_id is None else book.schedules.get(asked.schedule_id)
    if entry is None or entry.version.tenant != asked.tenant:
        raise NotFound("there is no such schedule")
    reject_stale(entry, asked)
    return entry


def reject_stale(entry: ScheduleRecord, asked: CommandContext) -> None:
    if asked.accepted_at < entry.changed_at:
        raise Conflict("a later change has been applied already", code="stale")
