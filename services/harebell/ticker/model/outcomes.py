"""The effect of ended runs on their schedule: awaited runs, failures in a row and blocks."""

from datetime import datetime
from typing import Final

from harebell.contract.ids import RunKey
from harebell.contract.types import truncate_ms
from harebell.contract.when import Every, Recurring
from harebell.domain.recurrence import RESOLUTION, AfterCompletion
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.model.planning_window import continue_planning
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork

UNRESOLVED_RUN_REASON: Final = "a run started and its outcome is unknown"


def apply_outcomes(unit: UnitOfWork, record: ScheduleRecord) -> None:
    """Apply each ended run once, by its row alone, and remove it from the open runs."""
    keys = [RunKey(time, record.id) for time in sorted(record.open_runs)]
    ended = {key: unit.ended_runs[key] for key in keys if key in unit.ended_runs}
    resolved = {key for key, run in ended.items() if run.state is not RunState.UNRESOLVED}
    removed = {key for key in resolved if not record.counts_later(key.scheduled_for)}
    changed = record._replace(
        consecutive_failures=_consecutive_failures(
            record.consecutive_failures, [ended[key] for key in sorted(removed)]
        ),
        open_runs=tuple(t for t in record.open_runs if RunKey(t, record.id) not in removed),
    )
    if record.awaited_run is not None:
        key = RunKey(record.awaited_run, record.id)
        if key in resolved:
            changed = _after_awaited_run(changed, ended[key])
    if changed.state is ScheduleState.ACTIVE or changed.state is ScheduleState.COMPLETED:
        changed = _block_or_pause(unit, changed, has_unresolved=len(resolved) < len(ended))
    left = (key for key in ended if key.scheduled_for not in changed.open_runs)
    changed = changed.with_results({key.scheduled_for: ended[key].result for key in left})
    if changed != record:
        unit.update(changed)


def _consecutive_failures(before: int, ended: list[LockedRun]) -> int:
    """Count the dead runs since the last success, in the order of their scheduled times."""
    failures = before
    for run in ended:
        if run.state is RunState.DEAD:
            failures += 1
        elif run.state is RunState.SUCCEEDED:
            failures = 0
    return failures


def _after_awaited_run(record: ScheduleRecord, run: LockedRun) -> ScheduleRecord:
    """Return the schedule with its next time, or completed after the success that ends it."""
    when = record.version.policy.when
    if isinstance(when, Recurring) and when.until and run.state is RunState.SUCCEEDED:
        return _complete(record, run.key.scheduled_for)
    record = record._replace(awaited_run=None)
    is_after_completion = isinstance(record.version.recurrence, AfterCompletion)
    if is_after_completion and isinstance(when, Every) and run.finished_at is not None:
        cursor = truncate_ms(run.finished_at + when.every) - RESOLUTION
        record = record._replace(planned_until=max(record.planned_until, cursor))
    return record if _is_stopped(record) else continue_planning(record)


def _complete(record: ScheduleRecord, run: datetime) -> ScheduleRecord:
    """Complete the schedule after the success that `until` requires.

    If it is paused and has no pending version, it has nothing left to plan either. If it is
    stopped, with a pending version or an unresolved run, it keeps the awaited run. Otherwise it
    would continue with the version that has reached its success.
    """
    is_paused_without_version = record.state is ScheduleState.PAUSED and not record.pending
    if not _is_stopped(record) or is_paused_without_version:
        completed = record._replace(state=ScheduleState.COMPLETED, paused_until=None)
        return completed._replace(next_at=record.pending_at, awaited_run=None)
    if record.state in (ScheduleState.CANCELLED, ScheduleState.DELETED):
        return record._replace(awaited_run=None)
    return record._replace(open_runs=tuple(sorted({*record.open_runs, run})))


def _is_stopped(record: ScheduleRecord) -> bool:
    return record.state not in (ScheduleState.ACTIVE, ScheduleState.COMPLETED)


def _block_or_pause(
    unit: UnitOfWork, record: ScheduleRecord, *, has_unresolved: bool
) -> ScheduleRecord:
    """Block the schedule for an unresolved run, or pause it after failures in a row."""
    limit = record.version.policy.pause_after_failures
    if has_unresolved:
        state, reason = ScheduleState.BLOCKED, UNRESOLVED_RUN_REASON
    elif limit is not None and record.consecutive_failures >= limit:
        state = ScheduleState.PAUSED
        reason = f"{record.consecutive_failures} runs failed in a row"
    else:
        return record
    unit.request_stop(unit.claimed_runs(record), Reason.PAUSED)
    unstaged = unit.unstage(record, Reason.PAUSED)
    return unstaged._replace(state=state, reason=reason, next_at=None, paused_until=None)
