"""What a command to a schedule is answered: how it stands, and when it runs next."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord

SHOWN_TIMES: Final = 3  # next instants that an answer tells


def schedule_response(
    entry: ScheduleRecord, status: str, cursor: datetime, in_flight: Sequence[LockedRun] = ()
) -> ScheduleResponse:
    return ScheduleResponse(
        id=entry.id,
        key=entry.version.policy.key,
        version=entry.version.number,
        status=status,
        state=entry.visible_state(cursor),
        next_at=_next(entry, cursor),
        in_flight=[str(run.key) for run in in_flight],
        pending_version=entry.pending.number if entry.pending else None,
        effective_at=entry.pending.effective_at if entry.pending else None,
    )


def _next(entry: ScheduleRecord, cursor: datetime) -> list[datetime]:
    """What has been handed over and is to come, and what is still to be planned."""
    if entry.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED, ScheduleState.ERRORED):
        return []
    instants = {run for run in entry.open_runs if run > cursor}
    instants |= _planned(entry, cursor).difference(entry.skipped_times)
    return sorted(instants)[:SHOWN_TIMES]


def _planned(entry: ScheduleRecord, cursor: datetime) -> set[datetime]:
    """By the version in force, and by the one that waits. Behind an awaited run: nobody knows."""
    count, skips = SHOWN_TIMES + len(entry.skipped_times), entry.skipped_times
    version, pending = entry.version, entry.pending
    found: list[datetime] = []
    in_force = VersionWindow(
        entry.id,
        version.policy,
        min(version.since, entry.planned_until),
        until=entry.pending_at,
        anchor=version.anchor,
        dispatched=entry.dispatched,
    )
    if entry.state is ScheduleState.ACTIVE and entry.awaited_run is None:
        after = max(cursor, entry.planned_until)
        found = in_force.instants(after, count, skips)
    if pending is not None:
        later = VersionWindow(entry.id, pending.policy, pending.since, anchor=pending.anchor)
        later = later.following(in_force.having_run(found, skips))
        found += later.instants(cursor, count, skips)
    return set(found)
