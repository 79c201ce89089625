"""The open runs of a schedule after a pass: which runs count now, and which have ended."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.ids import RunKey
from harebell.contract.policy import OnUnknown
from harebell.domain.recurrence import is_sequential
from harebell.domain.run_states import Reason, RunResult, ScheduleState
from harebell.ticker.model.planning_window import PlanningStep, continue_planning
from harebell.ticker.model.unit_of_work import ScheduleRecord

PROBABLY_FINISHED_AFTER: Final = timedelta(
    seconds=15
)  # the age at which the ticker queries the row of an open run


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
