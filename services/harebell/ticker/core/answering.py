"""What a command to a schedule is answered: how it stands, and when it runs next."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.contract.answers import ScheduleAnswer
from harebell.kernel.ledger import ScheduleState
from harebell.kernel.preview import Edition
from harebell.ticker.book import Entry, OpenRun

SHOWN: Final = 3  # next instants that an answer tells


def answer(
    entry: Entry, status: str, cursor: datetime, in_flight: Sequence[OpenRun] = ()
) -> ScheduleAnswer:
    return ScheduleAnswer(
        id=entry.id,
        key=entry.version.terms.key,
        version=entry.version.number,
        status=status,
        state=entry.standing(cursor),
        next_at=_next(entry, cursor),
        in_flight=[str(run.key) for run in in_flight],
        pending_version=entry.pending.number if entry.pending else None,
        effective_at=entry.pending.effective_at if entry.pending else None,
    )


def _next(entry: Entry, cursor: datetime) -> list[datetime]:
    """What has been handed over and is to come, and what is still to be planned."""
    if entry.state in (ScheduleState.PAUSED, ScheduleState.HELD, ScheduleState.PARKED):
        return []
    instants = {run for run in entry.open_runs if run > cursor}
    instants |= _planned(entry, cursor).difference(entry.skips)
    return sorted(instants)[:SHOWN]


def _planned(entry: Entry, cursor: datetime) -> set[datetime]:
    """By the version in force, and by the one that waits. Behind an awaited run: nobody knows."""
    count, skips = SHOWN + len(entry.skips), entry.skips
    version, pending = entry.version, entry.pending
    found: list[datetime] = []
    in_force = Edition(
        entry.id,
        version.terms,
        min(version.since, entry.planned_to),
        until=entry.pending_at,
        anchor=version.anchor,
        dispatched=entry.dispatched,
    )
    if entry.state is ScheduleState.ACTIVE and entry.awaiting is None:
        after = max(cursor, entry.planned_to)
        found = in_force.instants(after, count, skips)
    if pending is not None:
        later = Edition(entry.id, pending.terms, pending.since, anchor=pending.anchor)
        later = later.following(in_force.having_run(found, skips))
        found += later.instants(cursor, count, skips)
    return set(found)
