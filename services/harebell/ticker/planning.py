"""From schedules to the ledger's rows and the tickets that announce them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import orjson

from harebell.contract.errors import Rejected
from harebell.contract.identity import RunKey
from harebell.contract.names import Lane, lane_of
from harebell.contract.scalars import instant_text
from harebell.contract.when import Recurring
from harebell.kernel.ledger import NotOwed, Owed, Place, Reason, ScheduleState
from harebell.kernel.occurrences import Plan, Skipped, plan, planned
from harebell.kernel.routing import Routed
from harebell.ticker.book import Entry, Version

SETTLED_AFTER: Final = timedelta(seconds=60)  # then an open run is looked up: has it ended?
TRIGGER: Final = "trigger"


@dataclass(frozen=True, slots=True)
class Advance:
    """A schedule whose planning went on; `entry` counts nothing of `owed` yet."""

    entry: Entry
    owed: list[Owed]
    not_owed: list[NotOwed]


def advance(entry: Entry, now: datetime, until: datetime) -> Advance:
    """Hand over what is owed up to `until`. A schedule that cannot be computed is parked."""
    version = entry.version
    try:
        made = plan(
            version.timetable,
            version.definition,
            entry.id,
            cursor=entry.planned_to,
            dispatched=entry.dispatched,
            now=now,
            until=until,
        )
    except (Rejected, ArithmeticError, ValueError) as error:
        parked = replace(entry, state=ScheduleState.PARKED, next_at=None, reason=str(error))
        return Advance(parked, [], [])
    place = place_of(version)
    owed = [
        Owed(RunKey(run.scheduled_for, entry.id), place, run.due_at, run.expires_at)
        for run in made.runs
    ]
    not_owed = [
        NotOwed(RunKey(each.first, entry.id), place, each.last, each.count, each.reason)
        for each in (_without_row(skipped, entry) for skipped in made.skipped)
        if each.count
    ]
    return Advance(_planned(entry, made), owed, not_owed)


def advance_if_due(entry: Entry, now: datetime, until: datetime) -> Advance:
    if entry.next_at is None or entry.next_at > until:
        return Advance(entry, [], [])
    return advance(entry, now, until)


def _without_row(skipped: Skipped, entry: Entry) -> Skipped:
    """From its first instant on that has no run: the row of the range is that of its first."""
    while skipped.count and skipped.first in entry.open_runs:
        following = entry.version.timetable.next_after(skipped.first) or skipped.last
        skipped = replace(skipped, first=following, count=skipped.count - 1)
    return skipped


def _planned(entry: Entry, made: Plan) -> Entry:
    state = entry.state if made.next_at else ScheduleState.COMPLETED
    return replace(entry, planned_to=made.planned_to, next_at=made.next_at, state=state)


@dataclass(frozen=True, slots=True)
class Triggered:
    version: Version
    owed: Owed


def triggered(version: Version, instant: datetime) -> Triggered:
    """One run beside the timetable: due at once, whatever the jitter."""
    run = planned(version.definition, version.schedule_id, instant)
    key = RunKey(instant, version.schedule_id)
    owed = Owed(key, place_of(version), instant, run.expires_at, origin=TRIGGER)
    return Triggered(version, owed)


def untriggered(version: Version, instant: datetime, reason: Reason) -> NotOwed:
    """A run that was cancelled in the transaction that would have made it."""
    key = RunKey(instant, version.schedule_id)
    return NotOwed(key, place_of(version), instant, 1, reason)


def place_of(version: Version) -> Place:
    definition = version.definition
    lane = lane_of(definition.priority)
    return Place(version.tenant, version.number, definition.pool, lane, definition.priority)


def doubtful(entry: Entry, now: datetime) -> list[RunKey]:
    """Open runs so old that they have probably ended."""
    old = now - SETTLED_AFTER
    return [RunKey(moment, entry.id) for moment in entry.open_runs if moment < old]


def opened(made: Advance, staged: Collection[RunKey], ended: Collection[RunKey]) -> Entry:
    """Count what was staged, and what was there already; forget what has ended."""
    entry = made.entry
    kept = [moment for moment in entry.open_runs if RunKey(moment, entry.id) not in ended]
    known = set(entry.open_runs)
    counted = [run for run in made.owed if run.key in staged or run.key.scheduled_for in known]
    mine = [run.key.scheduled_for for run in made.owed if run.key in staged]
    standing = replace(
        entry,
        dispatched=entry.dispatched + len(counted),
        open_runs=tuple(dict.fromkeys([*kept, *mine])),
    )
    return standing if len(counted) == len(made.owed) else _going_on(standing)


def _going_on(entry: Entry) -> Entry:
    """Instants whose runs were counted long ago took up room: `times` may leave more to plan."""
    when = entry.version.definition.when
    times = when.times if isinstance(when, Recurring) else None
    if entry.state is not ScheduleState.COMPLETED or times is None or entry.dispatched >= times:
        return entry
    next_at = entry.version.timetable.next_after(entry.planned_to)
    return replace(entry, next_at=next_at, state=ScheduleState.ACTIVE) if next_at else entry


def tickets(
    staged: Mapping[RunKey, int], owed: Iterable[Owed], versions: Mapping[RunKey, Version]
) -> list[Routed]:
    """The tickets of what was staged, by the seq that each row has."""
    return [_ticket(run, staged[run.key], versions[run.key]) for run in owed if run.key in staged]


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
    )
