"""The planning of schedules up to the horizon, each time by the version in force at that time."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.contract.policy import OnUnknown
from harebell.domain.planner import MISSED_AFTER, PlanningResult, plan
from harebell.domain.recurrence import RESOLUTION, initial_cursor, is_sequential
from harebell.domain.run_states import NewRun, Reason, ScheduleState, SkippedRange
from harebell.domain.schedule_status import RunResult
from harebell.ticker.model.planning_cursor import continue_planning, resume_planning
from harebell.ticker.model.run_rows import manual_run_row, placement_of
from harebell.ticker.model.unit_of_work import ManualRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus

RECURRENCE_ERRORS: Final = (Rejected, ArithmeticError, ValueError)  # that a recurrence may raise

PROBABLY_FINISHED_AFTER: Final = timedelta(
    seconds=15
)  # the age at which the ticker queries the row of an open run


# A frozen class needs twice the time, and a pass creates one for each schedule.
@dataclass(slots=True, kw_only=True)
class PlanningStep:
    """One planned schedule, with the rows to write.

    `record` does not count the runs of `to_stage` and `already_staged` yet.
    The runs of `to_stage_early` belong to the pending version, and its activation counts them.
    """

    previous: ScheduleRecord
    record: ScheduleRecord
    to_stage: list[NewRun] = field(default_factory=list)
    to_stage_early: list[NewRun] = field(default_factory=list)
    manual_runs: Sequence[NewRun] = ()
    already_staged: list[RunKey] = field(default_factory=list)
    skipped: list[SkippedRange] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)  # of the runs to stage
    version_statuses: dict[tuple[UUID, int], tuple[VersionStatus, str | None]] = field(
        default_factory=dict
    )
    handover: VersionHandover | None = None

    def combine(self, later: "PlanningStep") -> "PlanningStep":
        """Return one step from the previous record of this step to the record of `later`."""
        return PlanningStep(
            previous=self.previous,
            record=later.record,
            to_stage=self.to_stage + later.to_stage,
            to_stage_early=self.to_stage_early + later.to_stage_early,
            already_staged=self.already_staged + later.already_staged,
            skipped=self.skipped + later.skipped,
            versions=self.versions + later.versions,
            version_statuses=self.version_statuses | later.version_statuses,
            handover=later.handover or self.handover,
        )


def plan_unit(unit: UnitOfWork, *, now: datetime, until: datetime) -> list[PlanningStep]:
    """Plan every changed schedule up to `until`, and add the manual runs of the batch."""
    changed = [unit.schedules[id_] for id_ in sorted(unit.changed_ids, key=int)]
    steps = [plan_if_due(record, now, until) for record in changed]
    manual_runs: dict[UUID, list[ManualRun]] = defaultdict(list)
    for run in unit.manual_runs:
        manual_runs[run.version.schedule_id].append(run)
    for step in steps if manual_runs else ():
        runs = manual_runs.get(step.previous.id, [])
        step.manual_runs = [manual_run_row(run) for run in runs]
        step.versions += [run.version for run in runs]
    return steps


def plan_if_due(record: ScheduleRecord, now: datetime, until: datetime) -> PlanningStep:
    """Plan the schedule if its next time is within the horizon."""
    if record.next_at is None or record.next_at > until:
        return PlanningStep(previous=record, record=record)
    return plan_schedule(record, now, until)


def plan_schedule(record: ScheduleRecord, now: datetime, until: datetime) -> PlanningStep:
    """Return the runs to stage up to `until`, each by the version in force at its time."""
    if record.state is ScheduleState.PAUSED and record.paused_until is not None:
        if now < record.paused_until:  # a pass includes the next times within the horizon
            postponed = _postpone(record, record.paused_until, until - now)
            return PlanningStep(previous=record, record=postponed)
        record = resume_planning(record, record.paused_until)
    pending = record.pending
    if not pending or pending[0].since > until:
        return _plan_window(record, now, until)
    step = _plan_window(record, now, pending[0].since - RESOLUTION)
    next_at = step.record.next_at
    if next_at is not None and next_at < pending[0].since:
        return step  # one pass has reached its bound before the pending version
    if now < pending[0].since:
        return _stage_pending_versions(step, now, until)
    return _activate_pending_version(step, now=now, until=until)


def _postpone(record: ScheduleRecord, at: datetime, horizon: timedelta) -> ScheduleRecord:
    """Return the schedule with its next pass at `at`, although a pass starts a horizon earlier."""
    return record._replace(next_at=at + horizon)


def _plan_window(
    record: ScheduleRecord, now: datetime, until: datetime, *, uncounted: int = 0
) -> PlanningStep:
    """Plan by the version in force. A recurrence that raises an error makes the schedule errored.

    A completed or cancelled schedule requires no run and waits for its pending version.
    """
    version = record.version
    if record.awaited_run is not None or record.state is not ScheduleState.ACTIVE:
        waiting = record._replace(next_at=record.pending_at)
        return PlanningStep(previous=record, record=waiting)
    try:
        result = plan_record(record, now, until, uncounted=uncounted)
    except RECURRENCE_ERRORS as error:
        errored = record._replace(
            state=ScheduleState.ERRORED, next_at=record.pending_at, reason=str(error)
        )
        return PlanningStep(previous=record, record=errored)
    return PlanningStep(
        previous=record,
        record=_planned(record, result, now),
        to_stage=list(result.runs),
        already_staged=[RunKey(time, record.id) for time in result.already_staged],
        skipped=[
            each
            for each in (_without_open_runs(skipped, record) for skipped in result.skipped)
            if each.count
        ],
        versions=[version],
    )


def plan_record(
    record: ScheduleRecord, now: datetime, until: datetime, *, uncounted: int = 0
) -> PlanningResult:
    """Plan an active schedule by the version in force. Raise one of `RECURRENCE_ERRORS`."""
    version = record.version
    return plan(
        version.recurrence,
        version.policy,
        record.id,
        placement=placement_of(version),
        cursor=record.planned_until,
        dispatched=record.dispatched + uncounted,
        now=now,
        until=until,
        skipped_times=record.skipped_times,
        open_runs=record.open_runs,
        resumed_at=record.paused_until,
    )


def _planned(record: ScheduleRecord, result: PlanningResult, now: datetime) -> ScheduleRecord:
    """Return the schedule after a pass. A sequential schedule waits for the end of its run."""
    cursor = result.planned_until
    skipped_times = tuple(time for time in record.skipped_times if time > min(cursor, now))
    awaited, next_at, state = record.awaited_run, record.pending_at, record.state
    if result.runs and is_sequential(record.version.policy):
        awaited = result.runs[0].scheduled_for
    else:
        next_at = min(filter(None, [result.next_at, next_at]), default=None)
        state = state if next_at else ScheduleState.COMPLETED
    resumed_at = record.paused_until
    if resumed_at is not None and resumed_at <= now - MISSED_AFTER:
        resumed_at = None  # its times are missed without it
    return record._replace(
        planned_until=cursor,
        paused_until=resumed_at,
        skipped_times=skipped_times,
        awaited_run=awaited,
        next_at=next_at,
        state=state,
    )


def _without_open_runs(skipped: SkippedRange, record: ScheduleRecord) -> SkippedRange:
    """Return the range from its first time without a run, because this time is its key."""
    while skipped.count and skipped.key.scheduled_for in record.open_runs:
        time = record.version.recurrence.next_after(skipped.key.scheduled_for) or skipped.until
        skipped = replace(skipped, key=RunKey(time, record.id), count=skipped.count - 1)
    return skipped


def _stage_pending_versions(
    step: PlanningStep, now: datetime, until: datetime, *, uncounted: int = 0
) -> PlanningStep:
    """Stage the first runs of the pending versions early, while the old version stays in force.

    The activation of a version plans its runs once more and counts them, because they exist then.
    `uncounted` is the number of staged runs that `step.record` does not count yet.
    """
    pending = step.record.pending
    within = [each for each in pending if each.since <= until]
    ends = [each.since - RESOLUTION for each in within[1:]] + [until]
    postponed = _postpone(step.record, pending[0].since, until - now)
    next_at, before = postponed.next_at, step
    to_stage_early, versions = list(step.to_stage_early), list(step.versions)
    for version, end in zip(within, ends, strict=True):
        try:
            uncounted = _uncounted_runs(before, version, uncounted)
            in_force = _with_version_in_force(before.record, version)
            before = _plan_window(in_force, now, end, uncounted=uncounted)
        except RECURRENCE_ERRORS:  # the activation tries again and reports the error
            break
        to_stage_early += before.to_stage
        versions += before.versions
        next_at = before.record.next_at
        if next_at is not None and next_at <= end:
            break  # one pass has reached its bound, and the activation continues
    latest = postponed.next_at
    is_before = next_at is not None and latest is not None and until < next_at < latest
    return replace(
        step,
        record=postponed._replace(next_at=next_at) if is_before else postponed,
        to_stage_early=to_stage_early,
        versions=versions,
    )


def _activate_pending_version(
    step: PlanningStep, *, now: datetime, until: datetime
) -> PlanningStep:
    """Activate the next pending version, or keep the old version if the new one raises an error.

    The following pending version, if its effective time has passed too, waits for the next pass.
    """
    record = step.record
    pending, later = record.pending[0], record.pending[1:]
    key = (record.id, pending.number)
    try:
        activated = _with_version_in_force(record, pending)
    except RECURRENCE_ERRORS as error:
        failed = PlanningStep(
            previous=record,
            record=_without_failed_version(record._replace(pending=later)),
            version_statuses={key: (VersionStatus.FAILED, str(error))},
        )
        return step.combine(failed)
    delay = now - pending.since
    reason = f"{delay} late" if delay > MISSED_AFTER else None
    activation = PlanningStep(
        previous=record,
        record=activated,
        version_statuses={key: (VersionStatus.ACTIVE, reason)},
        handover=VersionHandover(
            schedule_id=record.id,
            from_version=record.version.number,
            planned_until=record.planned_until,
            to_version=pending.number,
            planned_from=activated.planned_until,
        ),
    )
    uncounted = _uncounted_runs(step, pending)
    is_last = not later or later[0].since > until
    end = until if is_last else later[0].since - RESOLUTION
    planned = _plan_window(activated, now, end, uncounted=uncounted)
    next_at = planned.record.next_at
    is_complete = next_at is None or next_at > end
    if not is_last and is_complete and now < later[0].since:
        planned = _stage_pending_versions(planned, now, until, uncounted=uncounted)
    return step.combine(activation.combine(planned))


def _without_failed_version(record: ScheduleRecord) -> ScheduleRecord:
    """Return the schedule that continues with the version in force."""
    # An awaited run that was cancelled would block the schedule permanently.
    awaited = record.awaited_run if record.awaited_run in record.open_runs else None
    is_planned = awaited is None and record.state is ScheduleState.ACTIVE
    times = [record.next_time if is_planned else None, record.pending_at]
    return record._replace(awaited_run=awaited, next_at=min(filter(None, times), default=None))


def _with_version_in_force(record: ScheduleRecord, pending: Version) -> ScheduleRecord:
    """Return the schedule from the effective time on. The same times keep their count."""
    has_same_times = pending.anchor == record.version.anchor
    cursor = initial_cursor(pending.recurrence, pending.since)
    return record._replace(
        version=pending,
        pending=record.pending[1:],
        state=ScheduleState.ACTIVE,
        planned_until=max(cursor, record.planned_until) if has_same_times else cursor,
        dispatched=record.dispatched if has_same_times else 0,
        awaited_run=None,
    )


def _uncounted_runs(step: PlanningStep, pending: Version, before: int = 0) -> int:
    """Return the number of runs of this step that count towards `times` of both versions.

    `before` is the number of runs of earlier steps that the record does not count either.
    """
    has_same_times = pending.anchor == step.record.version.anchor
    return before + len(step.to_stage) + len(step.already_staged) if has_same_times else 0


def probably_finished(record: ScheduleRecord, now: datetime) -> list[RunKey]:
    """Return the open runs that have probably ended because of their age.

    The reconciler removes the runs of a schedule that needs outcomes.
    A paused schedule keeps its runs, because planning counts them after the pause.
    """
    if needs_outcomes(record) or record.state is ScheduleState.PAUSED:
        return []
    old = now - PROBABLY_FINISHED_AFTER
    return [
        RunKey(time, record.id)
        for time in record.open_runs
        if time < old and not record.counts_later(time)
    ]


def needs_outcomes(record: ScheduleRecord) -> bool:
    """Return whether the outcomes of its runs change the schedule."""
    policy = record.version.policy
    return (
        is_sequential(policy)
        or policy.pause_after_failures is not None
        or policy.on_unknown is OnUnknown.BLOCK
    )


def schedules_to_reconcile(records: Iterable[ScheduleRecord], now: datetime) -> list[UUID]:
    """Return the schedules that need outcomes and have a run that has probably ended."""
    old = now - PROBABLY_FINISHED_AFTER
    return [
        each.id
        for each in records
        if needs_outcomes(each) and any(time < old for time in each.open_runs)
    ]


def not_newly_staged(step: PlanningStep, staged: Collection[RunKey]) -> list[RunKey]:
    """Return the runs that may count and that this pass has not inserted."""
    return [*(run.key for run in step.to_stage if run.key not in staged), *step.already_staged]


def with_staged_runs(
    step: PlanningStep,
    staged: Collection[RunKey],
    ended: Mapping[RunKey, RunResult | None],
    *,
    existing: Collection[RunKey] = (),
) -> ScheduleRecord:
    """Count the staged and the `existing` runs, and remove and count the ended runs."""
    record = step.record
    remaining = [t for t in record.open_runs if not (ended and RunKey(t, record.id) in ended)]
    new = [
        run.key.scheduled_for for run in (*step.to_stage, *step.to_stage_early) if run.key in staged
    ]
    required = [*(run.key for run in step.to_stage), *step.already_staged]
    counted = [key for key in required if _counts(step, key, staged=staged, existing=existing)]
    awaited = [] if record.awaited_run is None else [record.awaited_run]  # it may have ended
    updated = record._replace(
        dispatched=record.dispatched + len(counted),
        open_runs=tuple(dict.fromkeys([*remaining, *new, *awaited])),
    )
    if len(remaining) < len(record.open_runs):
        left = (t for t in record.open_runs if t not in updated.open_runs)
        updated = updated.with_results({t: ended[RunKey(t, record.id)] for t in left})
    for skipped in step.skipped:
        # A time that a user skipped may be in the future, before the end of earlier runs.
        if skipped.reason is not Reason.MANUAL or updated.state is ScheduleState.COMPLETED:
            updated = updated.with_skipped_run(skipped.key.scheduled_for)
    if len(counted) < len(required) and updated.state is ScheduleState.COMPLETED:
        # Runs that were counted earlier took the place of new ones: `times` allows more.
        return continue_planning(updated)
    return updated


def _counts(
    step: PlanningStep, key: RunKey, *, staged: Collection[RunKey], existing: Collection[RunKey]
) -> bool:
    """Return whether a run counts now.

    A run that is no longer open was counted earlier, except a run that was staged early.
    """
    old, version = step.previous.version, step.record.version
    if version is old or key.scheduled_for < version.since:
        is_known = key in existing and key.scheduled_for in step.previous.open_runs
        return version.anchor == old.anchor and (key in staged or is_known)
    return key in staged or key in existing
