"""The planning of schedules up to the horizon, each time by the version in force at that time."""

from collections import defaultdict
from datetime import datetime
from uuid import UUID

from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import ScheduleState
from harebell.ticker.model.pending_versions import activate_pending_version, stage_pending_versions
from harebell.ticker.model.planning_window import (
    PlanningStep,
    plan_window,
    postpone,
    resume_planning,
)
from harebell.ticker.model.run_rows import manual_run_row
from harebell.ticker.model.unit_of_work import ManualRun, ScheduleRecord, UnitOfWork


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
            postponed = postpone(record, record.paused_until, until - now)
            return PlanningStep(previous=record, record=postponed)
        record = resume_planning(record, record.paused_until)
    pending = record.pending
    if not pending or pending[0].since > until:
        return plan_window(record, now, until)
    step = plan_window(record, now, pending[0].since - RESOLUTION)
    next_at = step.record.next_at
    if next_at is not None and next_at < pending[0].since:
        return step  # one pass has reached its bound before the pending version
    if now < pending[0].since:
        return stage_pending_versions(step, now, until)
    return activate_pending_version(step, now=now, until=until)
