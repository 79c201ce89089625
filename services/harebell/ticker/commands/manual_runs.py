"""The handlers for single runs: trigger, backfill, skip, cancel and resolve."""

from collections.abc import Callable
from datetime import datetime
from itertools import takewhile
from typing import Final

from harebell.contract.commands import (
    Resolution,
    RunCancel,
    RunResolve,
    ScheduleBackfill,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import Conflict, InvalidInput, NotFound
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse, ScheduleResponse
from harebell.contract.types import instant_text, truncate_ms
from harebell.domain.recurrence import RESOLUTION, next_times, recurs_at, spend_freely
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.model.planning_window import continue_planning, resume_planning
from harebell.ticker.model.request import (
    CommandContext,
    FoundTimes,
    find_schedule_of_run,
    schedule_response,
)
from harebell.ticker.model.unit_of_work import (
    LockedRun,
    ManualRun,
    ManualRunOrigin,
    ScheduleRecord,
    UnitOfWork,
)
from harebell.ticker.model.version import Version

MAX_SKIPPED_TIMES: Final = 100  # future times of one schedule


def trigger(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Stage one run at the time of acceptance, or at the next millisecond without a run."""
    if record.state is ScheduleState.CANCELLED:
        raise Conflict("The schedule must not be cancelled.", code="not_active")
    overlap = context.command.overlap if isinstance(context.command, ScheduleTrigger) else None
    time = truncate_ms(context.accepted_at)
    while time in record.open_runs or RunKey(time, record.id) in unit.ended_runs:
        time += RESOLUTION
    run = ManualRun(
        version=record.version,
        scheduled_for=time,
        origin=ManualRunOrigin.TRIGGER,
        overlap=overlap,
        trace=context.trace,
    )
    changed = _add_manual_runs(unit, context, record, runs=[run])
    response = schedule_response(changed, "triggered", context.accepted_at)
    return response.model_copy(update={"run_id": str(run.key)})


def find_times(
    command: ScheduleBackfill, version: Version, spend: Callable[[], None] = spend_freely
) -> FoundTimes:
    """Return the times of a backfill. `spend` is called before each search, and may raise."""
    cursor = command.from_ - RESOLUTION
    times = next_times(version.recurrence, cursor, command.max + 1, spend=spend)
    return FoundTimes(version.number, list(takewhile(lambda time: time <= command.to, times)))


def backfill(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Stage a run for each past time of the recurrence. A run that exists stays unchanged."""
    command = context.command
    assert isinstance(command, ScheduleBackfill)  # noqa: S101  # the handler of this command
    found = context.found_times or find_times(command, record.version)
    if found.version != record.version.number:
        raise Conflict("The schedule must get no other version during its backfill.")
    times = found.times
    if len(times) > command.max:
        raise InvalidInput(
            f"The range must contain at most {command.max} runs, but it contains more.",
            field="max",
            code="too_many",
        )
    if times and times[-1] > context.accepted_at:
        raise InvalidInput(
            f"The range must be in the past, but it contains {instant_text(times[-1])}.",
            field="to",
        )
    runs = [
        ManualRun(
            version=record.version,
            scheduled_for=time,
            origin=ManualRunOrigin.BACKFILL,
            trace=context.trace,
        )
        for time in times
    ]
    run_ids = [str(run.key) for run in runs]
    status = "previewed" if command.dry_run else "backfilled"
    if not command.dry_run:
        record = _add_manual_runs(unit, context, record, runs=runs)
    response = schedule_response(record, status, context.accepted_at)
    return response.model_copy(update={"runs": run_ids})


def _add_manual_runs(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, runs: list[ManualRun]
) -> ScheduleRecord:
    """Add runs to the open runs. Manual runs do not count as dispatched."""
    unit.manual_runs += runs
    times = dict.fromkeys([*record.open_runs, *(run.scheduled_for for run in runs)])
    return unit.update(record._replace(open_runs=tuple(times), changed_at=context.accepted_at))


def skip(unit: UnitOfWork, context: CommandContext, record: ScheduleRecord) -> ScheduleResponse:
    """Skip the run of one scheduled time, and unstage this run if it is staged."""
    command = context.command
    assert isinstance(command, ScheduleSkip)  # noqa: S101  # the handler of this command
    at = command.at
    if not recurs_at(record.version_at(at).recurrence, at):
        raise InvalidInput(
            f"The time must be a scheduled time of the schedule, not {instant_text(at)}.",
            field="at",
            code="not_due",
        )
    run = unit.open_runs.get(RunKey(at, record.id))
    if run is not None and run.is_unattempted:
        # The activation of a version plans the time again, and so does a cursor that moves back.
        skipped_times = _skip_time(record, at, context.accepted_at)
        unit.cancel(run, Reason.MANUAL)
        changed = _without_open_run(record, at)._replace(skipped_times=skipped_times)
        if at <= record.planned_until and run.is_from_recurrence:
            changed = changed._replace(dispatched=max(0, record.dispatched - 1))
            changed = _with_room_in_times(changed)
        changed = _with_end(changed, run, Reason.MANUAL)
    elif at <= record.planned_until or at in record.open_runs:  # early runs are after the cursor
        raise Conflict(
            "The run must not have an attempt and must not have ended.",
            field="at",
            code="too_late",
        )
    else:
        changed = record._replace(skipped_times=_skip_time(record, at, context.accepted_at))
    updated = unit.update(changed._replace(changed_at=context.accepted_at))
    return schedule_response(updated, "skipped", context.accepted_at)


def _without_open_run(record: ScheduleRecord, removed: datetime) -> ScheduleRecord:
    """Remove a run, except the awaited run, which the reconciler must still find."""
    remaining = (time for time in record.open_runs if time != removed or time == record.awaited_run)
    return record._replace(open_runs=tuple(remaining))


def _with_end(record: ScheduleRecord, run: LockedRun, reason: Reason) -> ScheduleRecord:
    """Count a run that the command has cancelled and removed from the open runs.

    The run becomes the last run of a schedule that requires no further run.
    An active schedule may still have earlier runs, which end later.
    """
    time = run.key.scheduled_for
    if time in record.open_runs:
        return record
    if run.attempt or run.is_replayed:  # a replay starts again without an attempt
        return record.with_results({time: run.cancelled_result})
    if record.state is not ScheduleState.COMPLETED:
        return record
    return record.with_skipped_run(time) if reason is Reason.MANUAL else record.with_last_run(time)


def _with_room_in_times(record: ScheduleRecord) -> ScheduleRecord:
    """Continue a schedule that had staged all of `times`, because one run was cancelled."""
    if record.state is not ScheduleState.COMPLETED:
        return record
    return continue_planning(record) if record.next_time else record


def _skip_time(record: ScheduleRecord, at: datetime, now: datetime) -> tuple[datetime, ...]:
    future = {time for time in record.skipped_times if time > now} | {at}
    if len(future) > MAX_SKIPPED_TIMES:
        raise Conflict(
            f"A schedule must have at most {MAX_SKIPPED_TIMES} skipped times.", field="at"
        )
    return tuple(sorted(future))


def cancel_run(unit: UnitOfWork, context: CommandContext, command: RunCancel) -> RunResponse:
    """Cancel an open run, or request a stop of a claimed run."""
    key = RunKey.parse(command.run_id)
    record = find_schedule_of_run(unit, context)
    run = unit.open_runs.get(key)
    if run is None:
        raise NotFound(f"No open run has the id {command.run_id}.", field="run_id")
    if run.state is RunState.RUNNING:
        unit.request_stop([run], Reason.CANCELLED)
        return RunResponse(run_id=command.run_id, status="in_flight", state=run.state)
    unit.cancel(run, Reason.CANCELLED)
    changed = _without_open_run(record, key.scheduled_for)
    if key.scheduled_for > context.accepted_at and run.is_unattempted:
        # A new version with the same time would otherwise stage the run again.
        skipped = _skip_time(record, key.scheduled_for, context.accepted_at)
        changed = changed._replace(skipped_times=skipped)
    unit.update(_with_end(changed, run, Reason.CANCELLED))
    return RunResponse(run_id=command.run_id, status="cancelled", state=RunState.CANCELLED)


_RESOLVED_STATES: Final = {
    Resolution.SUCCEEDED: RunState.SUCCEEDED,
    Resolution.SKIPPED: RunState.SKIPPED,
    Resolution.RETRY: RunState.STAGED,
}


def resolve_run(unit: UnitOfWork, context: CommandContext, command: RunResolve) -> RunResponse:
    """Resolve an unresolved run. The last one of a blocked schedule also ends the block."""
    key = RunKey.parse(command.run_id)
    record = find_schedule_of_run(unit, context)
    run = unit.ended_runs.get(key)
    if run is None or run.state is not RunState.UNRESOLVED:
        raise NotFound(f"No unresolved run has the id {command.run_id}.", field="run_id")
    state = unit.resolved_runs[key] = _RESOLVED_STATES[command.as_]
    del unit.ended_runs[key]
    has_unresolved = any(
        other.schedule_id == record.id and run.state is RunState.UNRESOLVED
        for other, run in unit.ended_runs.items()
    )
    changed = record._replace(changed_at=context.accepted_at)
    if record.state is ScheduleState.BLOCKED and not has_unresolved:
        changed = resume_planning(changed, context.accepted_at)
    unit.update(changed)
    return RunResponse(run_id=command.run_id, status="resolved", state=state)
