"""The response of a schedule command: the state of the schedule and its next runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord

SHOWN_TIMES: Final = 3  # next times in a response


def schedule_response(
    record: ScheduleRecord,
    status: str,
    cursor: datetime,
    *,
    in_flight: Sequence[LockedRun] = (),
) -> ScheduleResponse:
    """Return the response with the next times after `cursor`."""
    return ScheduleResponse(
        id=record.id,
        key=record.version.policy.key,
        version=record.version.number,
        status=status,
        state=record.visible_state,
        next_at=_next_times(record, cursor),
        in_flight=[str(run.key) for run in in_flight],
        pending_version=record.pending.number if record.pending else None,
        effective_at=record.pending.effective_at if record.pending else None,
    )


def _next_times(record: ScheduleRecord, cursor: datetime) -> list[datetime]:
    """Return the times of the staged runs and of the runs that are not planned yet."""
    if record.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED, ScheduleState.ERRORED):
        return []
    times = {time for time in record.open_runs if time > cursor}
    times |= _unplanned_times(record, cursor).difference(record.skipped_times)
    return sorted(times)[:SHOWN_TIMES]


def _unplanned_times(record: ScheduleRecord, cursor: datetime) -> set[datetime]:
    """Return the next times of the version in force and of the pending version.

    The times after an awaited run are unknown.
    """
    count, skipped = SHOWN_TIMES + len(record.skipped_times), record.skipped_times
    version, pending = record.version, record.pending
    times: list[datetime] = []
    in_force = VersionWindow(
        schedule_id=record.id,
        policy=version.policy,
        since=min(version.since, record.planned_until),
        until=record.pending_at,
        anchor=version.anchor,
        dispatched=record.dispatched,
    )
    if record.state is ScheduleState.ACTIVE and record.awaited_run is None:
        times = in_force.next_times(max(cursor, record.planned_until), count, skipped)
    if pending is not None:
        window = VersionWindow(
            schedule_id=record.id,
            policy=pending.policy,
            since=pending.since,
            anchor=pending.anchor,
        )
        window = window.continuing(in_force.with_dispatched(times, skipped))
        times += window.next_times(cursor, count, skipped)
    return set(times)
