"""What an audit may find, and what it tells of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class FindingKind(StrEnum):
    LOST = "lost"  # an instant was owed and decided, and nothing is on record of it
    INVENTED = "invented"  # a run of the timetable at an instant that it never had
    DOUBLED = "doubled"  # a run that succeeded more than once, or went on after it had
    LATE = "late"  # it began later than it may
    STUCK = "stuck"  # it ought to have gone on by now
    IMPOSSIBLE = "impossible"  # columns that contradict each other
    DISAGREES = "disagrees"  # its state is not the one that its record leads to
    UNREAD = "unread"  # it could not be audited


@dataclass(frozen=True, slots=True)
class Finding:
    """`at`: the instant of the run; None: it is about the schedule."""

    kind: FindingKind
    tenant: str
    schedule_id: UUID
    key: str | None
    at: datetime | None
    text: str
