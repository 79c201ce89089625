"""The replacement of the version in force: what happens to its runs, its times and its cursor."""

from collections.abc import Sequence
from datetime import datetime

from harebell.contract.responses import ScheduleResponse
from harebell.domain.planner import StartDelays
from harebell.domain.recurrence import RESOLUTION, Once, initial_cursor, recurs_at
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.new_versions import put_in_force
from harebell.ticker.model.planning_window import continue_planning
from harebell.ticker.model.request import CommandContext, schedule_response
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version


def replace_version(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    version: Version,
    superseded: Sequence[Version],
) -> ScheduleResponse:
    """Replace the version in force, and move overdue runs to the new version.

    With the same times, planning continues from the old cursor. With other calendars, planning
    decides the times from now on again.
    """
    claimed = unit.claimed_runs(record)
    delays = _changed_delays(record.version, version)
    for run in unit.open_runs_of(record):
        if run.is_unattempted and _moves_to(version, run, context.accepted_at):
            unit.move_to_version(run, version, None if delays is None else _due_at(run, delays))
    has_begun = record.version not in superseded
    has_same_times = has_begun and version.definition.when == record.version.definition.when
    unstaged = unit.unstage(record, Reason.SUPERSEDED)
    first = cursor = initial_cursor(version.recurrence, version.since)
    if has_same_times and not isinstance(version.recurrence, Once):
        cursor = unstaged.planned_until
        if _calendars_of(version) != _calendars_of(record.version):
            unstaged = _decide_again(unstaged, version.since)
            cursor = unstaged.planned_until
    changed = continue_unless_stopped(
        unstaged._replace(
            version=version,
            pending=tuple(each for each in record.pending if each not in superseded),
            planned_until=cursor,
            changed_at=context.accepted_at,
            dispatched=unstaged.dispatched if has_same_times else 0,
        )
    )
    put_in_force(unit, unstaged, version, planned_from=cursor)
    return schedule_response(
        unit.update(changed),
        "updated",
        max(first, cursor),
        in_flight=claimed,
        superseded=superseded,
    )


def continue_unless_stopped(record: ScheduleRecord) -> ScheduleRecord:
    """Continue from the cursor, except a paused or blocked schedule, which keeps its state."""
    if is_stopped(record):
        return record._replace(next_at=record.paused_until)
    return continue_planning(record)


def is_stopped(record: ScheduleRecord) -> bool:
    return record.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED)


def _calendars_of(version: Version) -> tuple[object, object]:
    return version.policy.calendars, version.policy.pinned_calendars


def _changed_delays(old: Version, new: Version) -> StartDelays | None:
    """Return the delays of a new version, or None if its blackouts are those of the old one."""
    before, after = StartDelays.of(old.policy), StartDelays.of(new.policy)
    return None if before.blackouts == after.blackouts else after


def _due_at(run: LockedRun, delays: StartDelays) -> datetime:
    """Return the due time of a run that moves. A manual run is due at its scheduled time."""
    return delays.due_time(run.key) if run.is_from_recurrence else run.due_at


def _decide_again(record: ScheduleRecord, since: datetime) -> ScheduleRecord:
    """Return the schedule with a cursor before `since`, and without counting its later runs."""
    cursor = min(record.planned_until, since - RESOLUTION)
    again = [
        time
        for time in record.open_runs
        if cursor < time <= record.planned_until and recurs_at(record.version.recurrence, time)
    ]
    return record._replace(planned_until=cursor, dispatched=max(0, record.dispatched - len(again)))


def _moves_to(version: Version, run: LockedRun, at: datetime) -> bool:
    """Return whether a run is overdue, or waits for its jitter at a time of the new version."""
    time = run.key.scheduled_for
    return run.due_at <= at or (time <= at and recurs_at(version.recurrence, time))
