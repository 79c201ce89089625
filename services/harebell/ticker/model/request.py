"""A command with its context, the runs and the schedule that it names, and its response."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    RunCancel,
    RunResolve,
    ScheduleCommand,
    SchedulePut,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import Conflict, NotFound
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.contract.types import truncate_ms
from harebell.contract.views import ScheduledVersion
from harebell.contract.when import At
from harebell.domain.recurrence import RESOLUTION, Once
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version

MAX_TRIGGER_TIMES: Final = 20  # milliseconds that may already have a run when a trigger comes
SHOWN_TIMES: Final = 3  # next times in a response
_NOT_FOUND: Final = "The schedule does not exist."
_STATES_WITHOUT_NEXT_TIMES: Final = frozenset(
    {ScheduleState.PAUSED, ScheduleState.BLOCKED, ScheduleState.ERRORED, ScheduleState.DELETED}
)


class FoundTimes(NamedTuple):
    """The scheduled times of a range in a version, one more than a backfill may have at most."""

    version: int
    times: Sequence[datetime]


class CommandContext(NamedTuple):
    """One command with its tenant, schedule, actor and times.

    A tuple, because the ticker copies it for each command (decision 20).
    """

    tenant: str
    command: CommandBase
    schedule_id: UUID | None  # None: a bulk operation or a calendar
    accepted_at: datetime
    actor: str | None
    applied_at: datetime | None = None  # None: at once
    trace: Mapping[str, str] | None = None  # the JSON of a `TraceOrigin`
    is_redelivered: bool = False  # a delayed message that intake may have accepted before
    found_times: FoundTimes | None = None  # of a backfill, from before its transaction

    @property
    def named_schedule(self) -> UUID | None:
        """Return the schedule that the command names by an id, which may be of another tenant.

        The id of a key is derived from the tenant.
        """
        match self.command:
            case RunCancel() | RunResolve() | ScheduleCommand(id=UUID()):
                return self.schedule_id
            case _:
                return None

    @property
    def named_runs(self) -> list[RunKey]:
        """Return the keys of the runs that the command names or may create."""
        if self.schedule_id is None:
            return []
        match self.command:
            case RunCancel(run_id=run_id) | RunResolve(run_id=run_id):
                times = [RunKey.parse(run_id).scheduled_for]
            case ScheduleSkip(at=at):
                times = [at]
            case SchedulePut(when=At(at=at), revive=revive) if revive or at <= self.accepted_at:
                times = [at]  # an earlier put of this key may have had the same time
            case ScheduleTrigger():
                first = truncate_ms(self.accepted_at)
                times = [first + n * RESOLUTION for n in range(MAX_TRIGGER_TIMES)]
            case _:
                return []
        return [RunKey(time, self.schedule_id) for time in times]


def find_schedule(unit: UnitOfWork, context: CommandContext) -> ScheduleRecord:
    """Return the schedule of the command. Raise `NotFound`, or `Conflict` after a later change."""
    record = find_schedule_of_run(unit, context)
    if record.state is ScheduleState.DELETED:
        raise NotFound(_NOT_FOUND)
    return record


def find_schedule_of_run(unit: UnitOfWork, context: CommandContext) -> ScheduleRecord:
    """Return the schedule of a command to a run, which may also be deleted."""
    record = None if context.schedule_id is None else unit.schedules.get(context.schedule_id)
    if record is None or record.version.tenant != context.tenant:
        raise NotFound(_NOT_FOUND)
    reject_stale(record, context)
    return record


def reject_stale(record: ScheduleRecord, context: CommandContext) -> None:
    """Raise `Conflict` if a change that was accepted later is already applied."""
    if context.accepted_at < record.changed_at:
        raise Conflict(
            "The command must be newer than the last applied change of the schedule.", code="stale"
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
    is_planning = record.state is ScheduleState.ACTIVE and record.awaited_run is None
    if is_planning and not record.pending and isinstance(version.recurrence, Once):
        # A window would take longer than the rest of the response.
        at = version.recurrence.at
        return {at} if at > max(cursor, record.planned_until) else set()
    times: list[datetime] = []
    window = VersionWindow(
        schedule_id=record.id,
        policy=version.policy,
        since=min(version.since, record.planned_until),
        until=record.pending_at,
        anchor=version.anchor,
        dispatched=record.dispatched,
    )
    if is_planning:
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
