"""What is owed as rows of the ledger, and the tickets that announce them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import orjson

from harebell.contract.identity import RunKey
from harebell.contract.names import Lane, lane_of
from harebell.contract.scalars import instant_text
from harebell.kernel.ledger import NotOwed, Owed, Place, Reason
from harebell.kernel.occurrences import made_up_for, planned
from harebell.kernel.routing import Routed
from harebell.ticker.book import Entry, Extra, Origin
from harebell.ticker.version import Version


def extra_owed(extra: Extra) -> Owed:
    """One run beside the timetable: due at once, whatever the jitter."""
    version = extra.version
    run = planned(version.terms, version.schedule_id, extra.instant)
    key = RunKey(extra.instant, version.schedule_id)
    override = None if extra.overlap is None else f'{{"overlap":"{extra.overlap}"}}'
    late = None if extra.origin is Origin.BACKFILL else run.expires_at
    return Owed(key, place_of(version), extra.instant, late, extra.origin, override)


def renewed(key: RunKey, version: Version) -> Owed:
    """A run that takes this version. When it is due stays as it was."""
    run = planned(version.terms, version.schedule_id, key.scheduled_for)
    return Owed(key, place_of(version), run.due_at, run.expires_at)


def dropped(extra: Extra, reason: Reason) -> NotOwed:
    """A run that was cancelled in the transaction that would have made it."""
    key = RunKey(extra.instant, extra.version.schedule_id)
    return NotOwed(key, place_of(extra.version), extra.instant, 1, reason)


def owed_again(
    entry: Entry, taken_back: Collection[RunKey], now: datetime
) -> tuple[list[Owed], list[NotOwed]]:
    """Of what a pause took back that no timetable brings again."""
    version, place = entry.version, place_of(entry.version)
    moments = [moment for moment in entry.again if RunKey(moment, entry.id) in taken_back]
    runs, skips = made_up_for(version.terms, entry.id, moments, now)
    return (
        [Owed(RunKey(r.scheduled_for, entry.id), place, r.due_at, r.expires_at) for r in runs],
        [NotOwed(RunKey(s.first, entry.id), place, s.last, s.count, s.reason) for s in skips],
    )


def place_of(version: Version) -> Place:
    terms = version.terms
    lane = lane_of(terms.priority)
    return Place(version.tenant, version.number, terms.pool, lane, terms.priority)


def tickets(
    staged: Mapping[RunKey, int], owed: Iterable[Owed], versions: Iterable[Version]
) -> list[Routed]:
    """The tickets of what was staged, by the seq that each row has."""
    by_number = {(version.schedule_id, version.number): version for version in versions}
    return [
        _ticket(run, staged[run.key], by_number[run.key.schedule_id, run.place.version])
        for run in owed
        if run.key in staged
    ]


def _ticket(run: Owed, seq: int, version: Version) -> Routed:
    """As `contract.ticket.Ticket` reads it; the work travels as it is stored."""
    place = run.place
    raw = orjson.dumps(
        {
            "schedule_id": str(run.key.schedule_id),
            "scheduled_for": instant_text(run.key.scheduled_for),
            "due_at": instant_text(run.due_at),
            "expires_at": run.expires_at and instant_text(run.expires_at),
            "seq": seq,
            "version": place.version,
            "pool": place.pool,
            "lane": place.lane,
            "priority": place.priority,
            "override": run.override and orjson.Fragment(run.override),
            "work": orjson.Fragment(version.work),
        }
    )
    return Routed(
        key=run.key,
        seq=seq,
        due_at=run.due_at,
        pool=place.pool,
        lane=Lane(place.lane),
        priority=place.priority,
        raw=raw,
        tenant=place.tenant,
    )
