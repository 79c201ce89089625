"""The planning cursor of a schedule after a pause, a block or a change."""

from datetime import datetime

from harebell.domain.recurrence import recurs_at
from harebell.domain.run_states import ScheduleState
from harebell.ticker.model.unit_of_work import ScheduleRecord


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
