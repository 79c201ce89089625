"""The response of a schedule command: the state of the schedule and its next runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.contract.responses import ScheduleResponse
from harebell.contract.views import ScheduledVersion
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord
from harebell.ticker.model.version import Version

SHOWN_TIMES: Final = 3  # next times in a response

_STATES_WITHOUT_NEXT_TIMES: Final = frozenset(
    {ScheduleState.PAUSED, ScheduleState.BLOCKED, ScheduleState.ERRORED, ScheduleState.DELETED}
)


def schedule_response(
    record: ScheduleRecord,
    status: str,
    cursor: datetime,
    *,
    in_flight: Sequence[LockedRun] = (),
    scheduled: Version | None = None,
    superseded: Sequence[Version] = (),
) -> ScheduleResponse:
    """Return the response with the next times after `cursor`.

    `scheduled` is the pending version that the command created, or else the next one is shown.
    """
    pending = scheduled or next(iter(record.pending), None)
    return ScheduleResponse(
        id=record.id,
        key=record.version.policy.key,
        version=record.version.number,
        status=status,
        state=record.visible_state,
        next_at=_next_times(record, cursor),
        in_flight=[str(run.key) for run in in_flight],
        pending_version=pending.number if pending else None,
        effective_at=pending.effective_at if pending else None,
        supersedes=[
            ScheduledVersion(version=each.number, effective_at=each.since) for each in superseded
        ],
    )


def _next_times(record: ScheduleRecord, cursor: datetime) -> list[datetime]:
    """Return the times of the staged runs and of the runs that are not planned yet."""
    if record.state in _STATES_WITHOUT_NEXT_TIMES:
        return []
    times = {time for time in record.open_runs if time > cursor}
    times |= _unplanned_times(record, cursor).difference(record.skipped_times)
    return sorted(times)[:SHOWN_TIMES]


def _unplanned_times(record: ScheduleRecord, cursor: datetime) -> set[datetime]:
    """Return the next times of the version in force and of the pending versions.

    The times after an awaited run are unknown.
    """
    count, skipped = SHOWN_TIMES + len(record.skipped_times), record.skipped_times
    version = record.version
    times: list[datetime] = []
    window = VersionWindow(
        schedule_id=record.id,
        policy=version.policy,
        since=min(version.since, record.planned_until),
        until=record.pending_at,
        anchor=version.anchor,
        dispatched=record.dispatched,
    )
    if record.state is ScheduleState.ACTIVE and record.awaited_run is None:
        times = window.next_times(max(cursor, record.planned_until), count, skipped)
    found = list(times)
    ends = [*(each.since for each in record.pending[1:]), None]
    for pending, until in zip(record.pending, ends, strict=bool(record.pending)):
        if len(found) >= count:
            break
        before = window.with_dispatched(times, skipped)
        window = VersionWindow(
            schedule_id=record.id,
            policy=pending.policy,
            since=pending.since,
            until=until,
            anchor=pending.anchor,
        ).continuing(before)
        times = window.next_times(cursor, count, skipped)
        found += times
    return set(found)
