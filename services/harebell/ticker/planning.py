"""From schedules to the ledger's rows and the tickets that announce them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import orjson

from harebell.contract.errors import Rejected
from harebell.contract.identity import RunKey
from harebell.contract.names import Lane, lane_of
from harebell.contract.policy import OnUnknown
from harebell.contract.scalars import instant_text
from harebell.contract.when import Recurring
from harebell.kernel.ledger import NotOwed, Owed, Place, Reason, ScheduleState
from harebell.kernel.occurrences import MISSED_AFTER, Plan, Skipped, plan, planned
from harebell.kernel.routing import Routed
from harebell.kernel.timetable import TICK, first_cursor, is_sequential
from harebell.ticker.book import Entry, Extra, Fate, Origin, Takeover, Version
from harebell.ticker.core.halting import going_on

COMPUTING: Final = (Rejected, ArithmeticError, ValueError)  # what a timetable may raise

SETTLED_AFTER: Final = timedelta(seconds=60)  # then an open run is looked up: has it ended?


@dataclass(frozen=True, slots=True)
class Advance:
    """A schedule whose planning went on; `entry` counts nothing of `owed` yet."""

    before: Entry
    entry: Entry
    owed: list[Owed] = field(default_factory=list)
    not_owed: list[NotOwed] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)  # that `owed` is of
    fates: dict[tuple[UUID, int], tuple[Fate, str | None]] = field(default_factory=dict)
    takeover: Takeover | None = None

    def then(self, later: "Advance") -> "Advance":
        return Advance(
            self.before,
            later.entry,
            self.owed + later.owed,
            self.not_owed + later.not_owed,
            self.versions + later.versions,
            self.fates | later.fates,
            later.takeover or self.takeover,
        )


def advance(entry: Entry, now: datetime, until: datetime) -> Advance:
    """Hand over what is owed up to `until`, each instant by the version in force at it."""
    if entry.state is ScheduleState.PAUSED and entry.paused_until is not None:
        if now < entry.paused_until:  # to be looked at again when that has come
            return Advance(entry, _looked_at(entry, entry.paused_until, until - now))
        entry = going_on(entry)
    pending = entry.pending
    if pending is None or pending.since > until:
        return _hand_over(entry, now, until)
    handed_over = _hand_over(entry, now, pending.since - TICK)
    next_at = handed_over.entry.next_at
    if next_at is not None and next_at < pending.since:
        return handed_over  # there was more than a pass may take
    if now < pending.since:  # until then a pause or another change finds the old one in force
        return replace(handed_over, entry=_looked_at(handed_over.entry, pending.since, until - now))
    return handed_over.then(_commence(handed_over.entry, pending, now, until))


def _looked_at(entry: Entry, at: datetime, horizon: timedelta) -> Entry:
    """Schedules are looked at ahead of what they owe; this one not before that time."""
    return replace(entry, next_at=at + horizon)


def advance_if_due(entry: Entry, now: datetime, until: datetime) -> Advance:
    if entry.next_at is None or entry.next_at > until:
        return Advance(entry, entry)
    return advance(entry, now, until)


def _commence(entry: Entry, pending: Version, now: datetime, until: datetime) -> Advance:
    """The pending version's time has come; one that cannot be computed leaves the old in force."""
    key = (entry.id, pending.number)
    old = replace(entry, pending=None)
    try:
        cursor = first_cursor(pending.timetable, pending.since)
    except COMPUTING as error:
        awaited = old.awaiting if old.awaiting in old.open_runs else None  # it may be withdrawn
        next_at = old.version.timetable.next_after(old.planned_to)
        going = replace(old, awaiting=awaited, next_at=None if awaited else next_at)
        return Advance(entry, going, fates={key: (Fate.REJECTED, str(error))})
    same_times = pending.anchor == entry.version.anchor
    new = replace(
        old,
        version=pending,
        state=ScheduleState.ACTIVE,
        planned_to=max(cursor, old.planned_to) if same_times else cursor,
        dispatched=old.dispatched if same_times else 0,
        awaiting=None,
    )
    late = now - pending.since
    reason = f"{late} late" if late > MISSED_AFTER else None
    takeover = Takeover(
        entry.id, entry.version.number, entry.planned_to, pending.number, new.planned_to
    )
    fates = {key: (Fate.COMMENCED, reason)}
    commenced = Advance(entry, new, fates=fates, takeover=takeover)
    return commenced.then(_hand_over(new, now, until))


def _hand_over(entry: Entry, now: datetime, until: datetime) -> Advance:
    """By the version in force. A schedule that cannot be computed is parked.

    One that is over or cancelled owes nothing; it is looked at for the version that waits.
    """
    version = entry.version
    if entry.awaiting is not None or entry.state is not ScheduleState.ACTIVE:
        return Advance(entry, replace(entry, next_at=_pending_at(entry)))
    try:
        made = plan(
            version.timetable,
            version.definition,
            entry.id,
            cursor=entry.planned_to,
            dispatched=entry.dispatched,
            now=now,
            until=until,
            skips=entry.skips,
        )
    except COMPUTING as error:
        parked = replace(entry, state=ScheduleState.PARKED, next_at=None, reason=str(error))
        return Advance(entry, parked)
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
    return Advance(entry, _planned(entry, made, now), owed, not_owed, [version])


def _without_row(skipped: Skipped, entry: Entry) -> Skipped:
    """From its first instant on that has no run: the row of the range is that of its first."""
    while skipped.count and skipped.first in entry.open_runs:
        following = entry.version.timetable.next_after(skipped.first) or skipped.last
        skipped = replace(skipped, first=following, count=skipped.count - 1)
    return skipped


def _planned(entry: Entry, made: Plan, now: datetime) -> Entry:
    """A sequential schedule waits for the end of its run before it looks further."""
    cursor = made.planned_to
    skips = tuple(moment for moment in entry.skips if moment > min(cursor, now))
    entry = replace(entry, planned_to=cursor, skips=skips)
    if made.runs and is_sequential(entry.version.definition):
        awaiting = made.runs[0].scheduled_for
        return replace(entry, awaiting=awaiting, next_at=_pending_at(entry))
    next_at = min(filter(None, [made.next_at, _pending_at(entry)]), default=None)
    state = entry.state if next_at else ScheduleState.COMPLETED
    return replace(entry, next_at=next_at, state=state)


def _pending_at(entry: Entry) -> datetime | None:
    return None if entry.pending is None else entry.pending.since


def extra_owed(extra: Extra) -> Owed:
    """One run beside the timetable: due at once, whatever the jitter."""
    version = extra.version
    run = planned(version.definition, version.schedule_id, extra.instant)
    key = RunKey(extra.instant, version.schedule_id)
    override = None if extra.overlap is None else f'{{"overlap":"{extra.overlap}"}}'
    late = None if extra.origin is Origin.BACKFILL else run.expires_at
    return Owed(key, place_of(version), extra.instant, late, extra.origin, override)


def renewed(key: RunKey, version: Version) -> Owed:
    """A run that takes this version. When it is due stays as it was."""
    run = planned(version.definition, version.schedule_id, key.scheduled_for)
    return Owed(key, place_of(version), run.due_at, run.expires_at)


def dropped(extra: Extra, reason: Reason) -> NotOwed:
    """A run that was cancelled in the transaction that would have made it."""
    key = RunKey(extra.instant, extra.version.schedule_id)
    return NotOwed(key, place_of(extra.version), extra.instant, 1, reason)


def place_of(version: Version) -> Place:
    definition = version.definition
    lane = lane_of(definition.priority)
    return Place(version.tenant, version.number, definition.pool, lane, definition.priority)


def doubtful(entry: Entry, now: datetime) -> list[RunKey]:
    """Open runs so old that they have probably ended; a watched schedule's are reviewed.

    Not those of a pause: they tell what is counted already when planning goes on from before them.
    """
    if is_watched(entry) or entry.state is ScheduleState.PAUSED:
        return []
    old = now - SETTLED_AFTER
    return [RunKey(moment, entry.id) for moment in entry.open_runs if moment < old]


def is_watched(entry: Entry) -> bool:
    """Whether what becomes of its runs decides about the schedule."""
    definition = entry.version.definition
    return (
        is_sequential(definition)
        or definition.pause_after_failures is not None
        or definition.on_unknown is OnUnknown.HOLD
    )


def to_review(entries: Iterable[Entry], now: datetime) -> list[UUID]:
    """Watched schedules with runs so old that they have probably ended."""
    old = now - SETTLED_AFTER
    return [e.id for e in entries if is_watched(e) and any(run < old for run in e.open_runs)]


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
    )
