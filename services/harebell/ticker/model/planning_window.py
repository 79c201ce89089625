"""The planning of a schedule by one version, up to the horizon or the next effective time.

It continues from the planning cursor, which a pause, a block or a change moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.domain.planner import MISSED_AFTER, PlanningResult, plan
from harebell.domain.recurrence import is_sequential, recurs_at
from harebell.domain.run_states import NewRun, ScheduleState, SkippedRange
from harebell.ticker.model.run_rows import placement_of
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus

RECURRENCE_ERRORS: Final = (Rejected, ArithmeticError, ValueError)  # that a recurrence may raise


def resume_planning(record: ScheduleRecord, resumed_at: datetime) -> ScheduleRecord:
    """Return the active schedule after a pause or a block, with no consecutive failures.

    `paused_until` keeps the end of the pause, because its times are missed.
    A pause unstaged runs of an earlier version, and the recurrence does not return these runs.
    `to_restage` contains their times.
    """
    past = (
        time
        for time in record.open_runs
        if time <= record.planned_until and time != record.awaited_run
    )
    of_version = (time for time in past if record.version_at(time) is record.version)
    to_restage = tuple(
        time for time in of_version if not recurs_at(record.version.recurrence, time)
    )
    return continue_planning(record)._replace(
        paused_until=resumed_at, consecutive_failures=0, to_restage=to_restage
    )


def continue_planning(record: ScheduleRecord) -> ScheduleRecord:
    """Return the schedule active from its cursor on, or completed if nothing is left to plan."""
    awaited = record.awaited_run if record.awaited_run in record.open_runs else None
    times = [None if awaited else record.next_time, record.pending_at]
    next_at = min(filter(None, times), default=None)
    return record._replace(
        state=ScheduleState.ACTIVE if next_at or awaited else ScheduleState.COMPLETED,
        next_at=next_at,
        awaited_run=awaited,
        reason=None,
    )


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


def plan_window(
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


def postpone(record: ScheduleRecord, at: datetime, horizon: timedelta) -> ScheduleRecord:
    """Return the schedule with its next pass at `at`, although a pass starts a horizon earlier."""
    return record._replace(next_at=at + horizon)


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
