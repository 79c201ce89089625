"""What schedules owe up to the horizon, each instant by the version in force at it. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.contract.policy import OnUnknown
from harebell.domain.planner import MISSED_AFTER, PlanningResult, Skipped, plan
from harebell.domain.recurrence import RESOLUTION, initial_cursor, is_sequential
from harebell.domain.run_states import NewRun, ScheduleState, SkippedRange
from harebell.ticker.model.planning_cursor import continue_planning, resume_planning
from harebell.ticker.model.run_rows import placement_of
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus

RECURRENCE_ERRORS: Final = (Rejected, ArithmeticError, ValueError)  # what a timetable may raise

PROBABLY_FINISHED_AFTER: Final = timedelta(seconds=15)  # then an open run is looked up: has it ended?


@dataclass(slots=True)  # one of each schedule of a pass: to freeze it takes twice the time
class PlanningStep:
    """A schedule whose planning went on; `entry` counts nothing of `owed` and `met` yet.

    `ahead` is owed by the version that waits, and counted when that has commenced.
    """

    previous: ScheduleRecord
    record: ScheduleRecord
    to_stage: list[NewRun] = field(default_factory=list)
    to_stage_early: list[NewRun] = field(default_factory=list)
    already_staged: list[RunKey] = field(
        default_factory=list
    )  # passed over, though there was a run
    skipped: list[SkippedRange] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)  # that these runs are of
    version_statuses: dict[tuple[UUID, int], tuple[VersionStatus, str | None]] = field(default_factory=dict)
    handover: VersionHandover | None = None

    def combine(self, later: "PlanningStep") -> "PlanningStep":
        return PlanningStep(
            self.previous,
            later.record,
            self.to_stage + later.to_stage,
            self.to_stage_early + later.to_stage_early,
            self.already_staged + later.already_staged,
            self.skipped + later.skipped,
            self.versions + later.versions,
            self.version_statuses | later.version_statuses,
            later.handover or self.handover,
        )


def plan_schedule(entry: ScheduleRecord, now: datetime, until: datetime) -> PlanningStep:
    """Hand over what is owed up to `until`, each instant by the version in force at it."""
    if entry.state is ScheduleState.PAUSED and entry.paused_until is not None:
        if now < entry.paused_until:  # to be looked at again when that has come
            return PlanningStep(entry, _looked_at(entry, entry.paused_until, until - now))
        entry = resume_planning(entry)
    pending = entry.pending
    if pending is None or pending.since > until:
        return _plan_window(entry, now, until)
    handed_over = _plan_window(entry, now, pending.since - RESOLUTION)
    next_at = handed_over.record.next_at
    if next_at is not None and next_at < pending.since:
        return handed_over  # there was more than a pass may take
    if now < pending.since:
        return _plan_pending_version(handed_over, pending, now, until)
    return handed_over.combine(_activate_pending_version(handed_over, pending, now, until))


def _plan_pending_version(
    handed_over: PlanningStep, pending: Version, now: datetime, until: datetime
) -> PlanningStep:
    """Its first runs are staged in time, but a pause or another change finds the old in force.

    When its time has come they are planned once more, and counted: they are there already.
    """
    entry = _looked_at(handed_over.record, pending.since, until - now)
    try:
        ahead = _plan_window(
            _in_force(entry, pending), now, until, _uncounted_runs(handed_over, pending)
        )
    except RECURRENCE_ERRORS:  # its time may yet bring what it lacks
        return replace(handed_over, record=entry)
    coming = ahead.record.next_at  # up to the horizon: more than a pass may take, the rest can wait
    if coming is not None and until < coming < pending.since + (until - now):
        entry = entry._replace(next_at=coming)
    return replace(
        handed_over,
        record=entry,
        to_stage_early=ahead.to_stage,
        versions=handed_over.versions + ahead.versions,
    )


def _looked_at(entry: ScheduleRecord, at: datetime, horizon: timedelta) -> ScheduleRecord:
    """Schedules are looked at ahead of what they owe; this one not before that time."""
    return entry._replace(next_at=at + horizon)


def plan_if_due(entry: ScheduleRecord, now: datetime, until: datetime) -> PlanningStep:
    if entry.next_at is None or entry.next_at > until:
        return PlanningStep(entry, entry)
    return plan_schedule(entry, now, until)


def _activate_pending_version(
    handed_over: PlanningStep, pending: Version, now: datetime, until: datetime
) -> PlanningStep:
    """The pending version's time has come; one that cannot be computed leaves the old in force."""
    entry = handed_over.record
    key = (entry.id, pending.number)
    try:
        new = _in_force(entry, pending)
    except RECURRENCE_ERRORS as error:
        old = entry._replace(pending=None)
        awaited = (
            old.awaited_run if old.awaited_run in old.open_runs else None
        )  # it may be withdrawn
        going = old._replace(awaited_run=awaited, next_at=None if awaited else old.next_time)
        return PlanningStep(entry, going, version_statuses={key: (VersionStatus.FAILED, str(error))})
    late = now - pending.since
    reason = f"{late} late" if late > MISSED_AFTER else None
    takeover = VersionHandover(
        entry.id, entry.version.number, entry.planned_until, pending.number, new.planned_until
    )
    fates = {key: (VersionStatus.ACTIVE, reason)}
    commenced = PlanningStep(entry, new, version_statuses=fates, handover=takeover)
    promised = _uncounted_runs(handed_over, pending)
    return commenced.combine(_plan_window(new, now, until, promised))


def _in_force(old: ScheduleRecord, pending: Version) -> ScheduleRecord:
    """As the schedule is from that version's time on; the same times are counted on."""
    same_times = pending.anchor == old.version.anchor
    cursor = initial_cursor(pending.recurrence, pending.since)
    return old._replace(
        version=pending,
        pending=None,
        state=ScheduleState.ACTIVE,
        planned_until=max(cursor, old.planned_until) if same_times else cursor,
        dispatched=old.dispatched if same_times else 0,
        awaited_run=None,
    )


def _uncounted_runs(handed_over: PlanningStep, pending: Version) -> int:
    """Runs of the version before that count towards the `times` of both, not yet counted."""
    same_times = pending.anchor == handed_over.record.version.anchor
    return len(handed_over.to_stage) + len(handed_over.already_staged) if same_times else 0


def _plan_window(
    entry: ScheduleRecord, now: datetime, until: datetime, promised: int = 0
) -> PlanningStep:
    """By the version in force. A schedule that cannot be computed is parked.

    One that is over or cancelled owes nothing; it is looked at for the version that waits.
    """
    version = entry.version
    if entry.awaited_run is not None or entry.state is not ScheduleState.ACTIVE:
        return PlanningStep(entry, entry._replace(next_at=entry.pending_at))
    try:
        made = plan(
            version.recurrence,
            version.policy,
            entry.id,
            cursor=entry.planned_until,
            dispatched=entry.dispatched + promised,
            now=now,
            until=until,
            skips=entry.skipped_times,
            handed_over=entry.open_runs,
        )
    except RECURRENCE_ERRORS as error:
        waiting = entry._replace(next_at=entry.pending_at, reason=str(error))
        parked = waiting._replace(state=ScheduleState.ERRORED)
        return PlanningStep(entry, parked)
    return _handed_over(entry, made, _planned(entry, made, now))


def _handed_over(
    entry: ScheduleRecord, made: PlanningResult, standing: ScheduleRecord
) -> PlanningStep:
    place = placement_of(entry.version)
    return PlanningStep(
        entry,
        standing,
        to_stage=[
            NewRun(RunKey(run.scheduled_for, entry.id), place, run.due_at, run.expires_at)
            for run in made.runs
        ],
        already_staged=[RunKey(moment, entry.id) for moment in made.already_staged],
        skipped=[
            SkippedRange(RunKey(each.first, entry.id), place, each.last, each.count, each.reason)
            for each in (_without_row(skipped, entry) for skipped in made.skipped)
            if each.count
        ],
        versions=[entry.version],
    )


def _without_row(skipped: Skipped, entry: ScheduleRecord) -> Skipped:
    """From its first instant on that has no run: the row of the range is that of its first."""
    while skipped.count and skipped.first in entry.open_runs:
        following = entry.version.recurrence.next_after(skipped.first) or skipped.last
        skipped = replace(skipped, first=following, count=skipped.count - 1)
    return skipped


def _planned(entry: ScheduleRecord, made: PlanningResult, now: datetime) -> ScheduleRecord:
    """A sequential schedule waits for the end of its run before it looks further."""
    cursor = made.planned_until
    skips = tuple(moment for moment in entry.skipped_times if moment > min(cursor, now))
    awaiting, next_at, state = entry.awaited_run, entry.pending_at, entry.state
    if made.runs and is_sequential(entry.version.policy):
        awaiting = made.runs[0].scheduled_for
    else:
        next_at = min(filter(None, [made.next_at, next_at]), default=None)
        state = state if next_at else ScheduleState.COMPLETED
    return entry._replace(
        planned_until=cursor, skips=skips, awaited_run=awaiting, next_at=next_at, state=state
    )


def probably_finished(entry: ScheduleRecord, now: datetime) -> list[RunKey]:
    """Open runs so old that they have probably ended; a watched schedule's are reviewed.

    Not those of a pause: they tell what is counted already when planning goes on from before them.
    """
    if needs_outcomes(entry) or entry.state is ScheduleState.PAUSED:
        return []
    old = now - PROBABLY_FINISHED_AFTER
    return [RunKey(moment, entry.id) for moment in entry.open_runs if moment < old]


def needs_outcomes(entry: ScheduleRecord) -> bool:
    """Whether what becomes of its runs decides about the schedule."""
    terms = entry.version.policy
    return (
        is_sequential(terms)
        or terms.pause_after_failures is not None
        or terms.on_unknown is OnUnknown.BLOCK
    )


def schedules_to_reconcile(entries: Iterable[ScheduleRecord], now: datetime) -> list[UUID]:
    """Watched schedules with runs so old that they have probably ended."""
    old = now - PROBABLY_FINISHED_AFTER
    return [e.id for e in entries if needs_outcomes(e) and any(run < old for run in e.open_runs)]


def not_newly_staged(made: PlanningStep, staged: Collection[RunKey]) -> list[RunKey]:
    """Of the runs that may count, those that this pass did not bring about."""
    return [*(run.key for run in made.to_stage if run.key not in staged), *made.already_staged]


def with_staged_runs(
    made: PlanningStep,
    staged: Collection[RunKey],
    ended: Collection[RunKey],
    there: Collection[RunKey] = (),
) -> ScheduleRecord:
    """Count what was staged, and what was `there` already; forget what has ended."""
    entry = made.record
    kept = [m for m in entry.open_runs if not (ended and RunKey(m, entry.id) in ended)]
    mine = [
        run.key.scheduled_for for run in (*made.to_stage, *made.to_stage_early) if run.key in staged
    ]
    owed = [*(run.key for run in made.to_stage), *made.already_staged]
    counted = [key for key in owed if _counts(made, key, staged, there)]
    awaited = [] if entry.awaited_run is None else [entry.awaited_run]  # it may have ended already
    standing = entry._replace(
        dispatched=entry.dispatched + len(counted),
        open_runs=tuple(dict.fromkeys([*kept, *mine, *awaited])),
    )
    return standing if len(counted) == len(owed) else _going_on(standing)


def _counts(
    made: PlanningStep, key: RunKey, staged: Collection[RunKey], there: Collection[RunKey]
) -> bool:
    """Once: what is no longer open has been counted, but not what was staged ahead."""
    before, version = made.previous.version, made.record.version
    if version is before or key.scheduled_for < version.since:
        known = key in there and key.scheduled_for in made.previous.open_runs
        return version.anchor == before.anchor and (key in staged or known)
    return key in staged or key in there


def _going_on(entry: ScheduleRecord) -> ScheduleRecord:
    """Instants whose runs were counted long ago took up room: `times` may leave more to plan."""
    return continue_planning(entry) if entry.state is ScheduleState.COMPLETED else entry
