"""Pending versions: their first runs are staged early, and their effective time activates them."""

from dataclasses import replace
from datetime import datetime

from harebell.domain.planner import MISSED_AFTER
from harebell.domain.recurrence import RESOLUTION, initial_cursor
from harebell.domain.run_states import ScheduleState
from harebell.ticker.model.planning_window import (
    RECURRENCE_ERRORS,
    PlanningStep,
    plan_window,
    postpone,
)
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus


def stage_pending_versions(
    step: PlanningStep, now: datetime, until: datetime, *, uncounted: int = 0
) -> PlanningStep:
    """Stage the first runs of the pending versions early, while the old version stays in force.

    The activation of a version plans its runs once more and counts them, because they exist then.
    `uncounted` is the number of staged runs that `step.record` does not count yet.
    """
    pending = step.record.pending
    within = [each for each in pending if each.since <= until]
    ends = [each.since - RESOLUTION for each in within[1:]] + [until]
    postponed = postpone(step.record, pending[0].since, until - now)
    next_at, before = postponed.next_at, step
    to_stage_early, versions = list(step.to_stage_early), list(step.versions)
    for version, end in zip(within, ends, strict=True):
        try:
            uncounted = _uncounted_runs(before, version, uncounted)
            in_force = _with_version_in_force(before.record, version)
            before = plan_window(in_force, now, end, uncounted=uncounted)
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


def activate_pending_version(step: PlanningStep, *, now: datetime, until: datetime) -> PlanningStep:
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
    planned = plan_window(activated, now, end, uncounted=uncounted)
    next_at = planned.record.next_at
    is_complete = next_at is None or next_at > end
    if not is_last and is_complete and now < later[0].since:
        planned = stage_pending_versions(planned, now, until, uncounted=uncounted)
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
