"""What schedules owe up to the horizon, each instant by the version in force at it. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.errors import Rejected
from harebell.contract.identity import RunKey
from harebell.contract.policy import OnUnknown
from harebell.kernel.ledger import NotOwed, Owed, ScheduleState
from harebell.kernel.occurrences import MISSED_AFTER, Plan, Skipped, plan
from harebell.kernel.timetable import TICK, first_cursor, is_sequential
from harebell.ticker.book import Entry
from harebell.ticker.core.halting import going_on, planned_on
from harebell.ticker.owing import place_of
from harebell.ticker.version import Fate, Takeover, Version

COMPUTING: Final = (Rejected, ArithmeticError, ValueError)  # what a timetable may raise

SETTLED_AFTER: Final = timedelta(seconds=15)  # then an open run is looked up: has it ended?


@dataclass(slots=True)  # one of each schedule of a pass: to freeze it takes twice the time
class Advance:
    """A schedule whose planning went on; `entry` counts nothing of `owed` and `met` yet.

    `ahead` is owed by the version that waits, and counted when that has commenced.
    """

    before: Entry
    entry: Entry
    owed: list[Owed] = field(default_factory=list)
    ahead: list[Owed] = field(default_factory=list)
    met: list[RunKey] = field(default_factory=list)  # passed over, though there was a run
    not_owed: list[NotOwed] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)  # that these runs are of
    fates: dict[tuple[UUID, int], tuple[Fate, str | None]] = field(default_factory=dict)
    takeover: Takeover | None = None

    def then(self, later: "Advance") -> "Advance":
        return Advance(
            self.before,
            later.entry,
            self.owed + later.owed,
            self.ahead + later.ahead,
            self.met + later.met,
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
    if now < pending.since:
        return _ahead(handed_over, pending, now, until)
    return handed_over.then(_commence(handed_over, pending, now, until))


def _ahead(handed_over: Advance, pending: Version, now: datetime, until: datetime) -> Advance:
    """Its first runs are staged in time, but a pause or another change finds the old in force.

    When its time has come they are planned once more, and counted: they are there already.
    """
    entry = _looked_at(handed_over.entry, pending.since, until - now)
    try:
        ahead = _hand_over(_in_force(entry, pending), now, until, _promised(handed_over, pending))
    except COMPUTING:  # its time may yet bring what it lacks
        return replace(handed_over, entry=entry)
    coming = ahead.entry.next_at  # up to the horizon: more than a pass may take, the rest can wait
    if coming is not None and until < coming < pending.since + (until - now):
        entry = entry._replace(next_at=coming)
    return replace(
        handed_over,
        entry=entry,
        ahead=ahead.owed,
        versions=handed_over.versions + ahead.versions,
    )


def _looked_at(entry: Entry, at: datetime, horizon: timedelta) -> Entry:
    """Schedules are looked at ahead of what they owe; this one not before that time."""
    return entry._replace(next_at=at + horizon)


def advance_if_due(entry: Entry, now: datetime, until: datetime) -> Advance:
    if entry.next_at is None or entry.next_at > until:
        return Advance(entry, entry)
    return advance(entry, now, until)


def _commence(handed_over: Advance, pending: Version, now: datetime, until: datetime) -> Advance:
    """The pending version's time has come; one that cannot be computed leaves the old in force."""
    entry = handed_over.entry
    key = (entry.id, pending.number)
    try:
        new = _in_force(entry, pending)
    except COMPUTING as error:
        old = entry._replace(pending=None)
        awaited = old.awaiting if old.awaiting in old.open_runs else None  # it may be withdrawn
        going = old._replace(awaiting=awaited, next_at=None if awaited else old.following)
        return Advance(entry, going, fates={key: (Fate.REJECTED, str(error))})
    late = now - pending.since
    reason = f"{late} late" if late > MISSED_AFTER else None
    takeover = Takeover(
        entry.id, entry.version.number, entry.planned_to, pending.number, new.planned_to
    )
    fates = {key: (Fate.COMMENCED, reason)}
    commenced = Advance(entry, new, fates=fates, takeover=takeover)
    promised = _promised(handed_over, pending)
    return commenced.then(_hand_over(new, now, until, promised))


def _in_force(old: Entry, pending: Version) -> Entry:
    """As the schedule is from that version's time on; the same times are counted on."""
    same_times = pending.anchor == old.version.anchor
    cursor = first_cursor(pending.timetable, pending.since)
    return old._replace(
        version=pending,
        pending=None,
        state=ScheduleState.ACTIVE,
        planned_to=max(cursor, old.planned_to) if same_times else cursor,
        dispatched=old.dispatched if same_times else 0,
        awaiting=None,
    )


def _promised(handed_over: Advance, pending: Version) -> int:
    """Runs of the version before that count towards the `times` of both, not yet counted."""
    same_times = pending.anchor == handed_over.entry.version.anchor
    return len(handed_over.owed) + len(handed_over.met) if same_times else 0


def _hand_over(entry: Entry, now: datetime, until: datetime, promised: int = 0) -> Advance:
    """By the version in force. A schedule that cannot be computed is parked.

    One that is over or cancelled owes nothing; it is looked at for the version that waits.
    """
    version = entry.version
    if entry.awaiting is not None or entry.state is not ScheduleState.ACTIVE:
        return Advance(entry, entry._replace(next_at=entry.pending_at))
    try:
        made = plan(
            version.timetable,
            version.terms,
            entry.id,
            cursor=entry.planned_to,
            dispatched=entry.dispatched + promised,
            now=now,
            until=until,
            skips=entry.skips,
            handed_over=entry.open_runs,
        )
    except COMPUTING as error:
        waiting = entry._replace(next_at=entry.pending_at, reason=str(error))
        parked = waiting._replace(state=ScheduleState.PARKED)
        return Advance(entry, parked)
    return _handed_over(entry, made, _planned(entry, made, now))


def _handed_over(entry: Entry, made: Plan, standing: Entry) -> Advance:
    place = place_of(entry.version)
    return Advance(
        entry,
        standing,
        owed=[
            Owed(RunKey(run.scheduled_for, entry.id), place, run.due_at, run.expires_at)
            for run in made.runs
        ],
        met=[RunKey(moment, entry.id) for moment in made.met],
        not_owed=[
            NotOwed(RunKey(each.first, entry.id), place, each.last, each.count, each.reason)
            for each in (_without_row(skipped, entry) for skipped in made.skipped)
            if each.count
        ],
        versions=[entry.version],
    )


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
    awaiting, next_at, state = entry.awaiting, entry.pending_at, entry.state
    if made.runs and is_sequential(entry.version.terms):
        awaiting = made.runs[0].scheduled_for
    else:
        next_at = min(filter(None, [made.next_at, next_at]), default=None)
        state = state if next_at else ScheduleState.COMPLETED
    return entry._replace(
        planned_to=cursor, skips=skips, awaiting=awaiting, next_at=next_at, state=state
    )


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
    terms = entry.version.terms
    return (
        is_sequential(terms)
        or terms.pause_after_failures is not None
        or terms.on_unknown is OnUnknown.HOLD
    )


def to_review(entries: Iterable[Entry], now: datetime) -> list[UUID]:
    """Watched schedules with runs so old that they have probably ended."""
    old = now - SETTLED_AFTER
    return [e.id for e in entries if is_watched(e) and any(run < old for run in e.open_runs)]


def unstaged(made: Advance, staged: Collection[RunKey]) -> list[RunKey]:
    """Of the runs that may count, those that this pass did not bring about."""
    return [*(run.key for run in made.owed if run.key not in staged), *made.met]


def opened(
    made: Advance,
    staged: Collection[RunKey],
    ended: Collection[RunKey],
    there: Collection[RunKey] = (),
) -> Entry:
    """Count what was staged, and what was `there` already; forget what has ended."""
    entry = made.entry
    kept = [m for m in entry.open_runs if not (ended and RunKey(m, entry.id) in ended)]
    mine = [run.key.scheduled_for for run in (*made.owed, *made.ahead) if run.key in staged]
    owed = [*(run.key for run in made.owed), *made.met]
    counted = [key for key in owed if _counts(made, key, staged, there)]
    awaited = [] if entry.awaiting is None else [entry.awaiting]  # it may have ended already
    standing = entry._replace(
        dispatched=entry.dispatched + len(counted),
        open_runs=tuple(dict.fromkeys([*kept, *mine, *awaited])),
    )
    return standing if len(counted) == len(owed) else _going_on(standing)


def _counts(
    made: Advance, key: RunKey, staged: Collection[RunKey], there: Collection[RunKey]
) -> bool:
    """Once: what is no longer open has been counted, but not what was staged ahead."""
    before, version = made.before.version, made.entry.version
    if version is before or key.scheduled_for < version.since:
        known = key in there and key.scheduled_for in made.before.open_runs
        return version.anchor == before.anchor and (key in staged or known)
    return key in staged or key in there


def _going_on(entry: Entry) -> Entry:
    """Instants whose runs were counted long ago took up room: `times` may leave more to plan."""
    return planned_on(entry) if entry.state is ScheduleState.COMPLETED else entry
