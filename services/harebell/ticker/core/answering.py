"""What a command to a schedule is answered: how it stands, and when it runs next."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.contract.answers import ScheduleAnswer
from harebell.kernel.ledger import ScheduleState
from harebell.kernel.timetable import preview
from harebell.ticker.book import Entry, OpenRun

SHOWN: Final = 3  # next instants that an answer tells


def answer(
    entry: Entry, status: str, cursor: datetime, in_flight: Sequence[OpenRun] = ()
) -> ScheduleAnswer:
    return ScheduleAnswer(
        id=entry.id,
        key=entry.version.definition.key,
        version=entry.version.number,
        status=status,
        state=entry.standing(cursor),
        next_at=_next(entry, cursor),
        in_flight=[str(run.key) for run in in_flight],
        pending_version=entry.pending.number if entry.pending else None,
        effective_at=entry.pending.effective_at if entry.pending else None,
    )


def _next(entry: Entry, cursor: datetime) -> list[datetime]:
    """Of a schedule that has been handed over to its end, what of that is to come."""
    match entry.state:
        case ScheduleState.ACTIVE:
            return preview(entry.version.timetable, cursor, SHOWN)
        case ScheduleState.COMPLETED:
            return sorted(run for run in entry.open_runs if run > cursor)[:SHOWN]
        case _:
            return []
