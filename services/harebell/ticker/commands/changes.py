"""New versions of a schedule that has not ended, and the pending versions that they supersede."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from harebell.contract.commands import MAX_PENDING_VERSIONS, SchedulePatch, SchedulePut
from harebell.contract.errors import Conflict
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.contract.types import instant_text
from harebell.contract.when import Recurring
from harebell.domain.planner import StartDelays
from harebell.domain.recurrence import RESOLUTION, Once, initial_cursor, recurs_at
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.responses import schedule_response
from harebell.ticker.model.planning_cursor import continue_planning
from harebell.ticker.model.request import CommandContext
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus


def change(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, definition: Definition
) -> ScheduleResponse:
    """Give the schedule a new version, which supersedes pending versions.

    A change at once supersedes every pending version.
    A change with an effective time supersedes the pending version of that time only.
    """
    effective_at = effective_time(context)
    now = context.applied_at or context.accepted_at
    if effective_at is not None and effective_at <= context.accepted_at:
        raise Conflict(
            f"The effective time must be in the future, not {instant_text(effective_at)}.",
            field="effective_at",
            code="missed",
        )
    number = record.next_number
    version = new_version(context, definition, number=number)
    version = _with_anchor(version, record.version_at(version.since), context)
    check_one_shot(version)
    if effective_at is not None and effective_at <= now:
        late = now - effective_at
        return _record_missed(
            unit, context, record._replace(last_number=number), version=version, delay=late
        )
    superseded = [each for each in record.pending if effective_at in (None, each.since)]
    if effective_at is not None and len(record.pending) - len(superseded) >= MAX_PENDING_VERSIONS:
        raise Conflict(
            f"A schedule must have at most {MAX_PENDING_VERSIONS} pending versions, "
            f"and this schedule has {len(record.pending)}.",
            field="effective_at",
            code="too_many",
        )
    if record.version.since > now and version.since <= record.version.since:
        # The first version has not taken effect, because its put had an effective time.
        superseded.insert(0, record.version)
        supersede(unit, superseded, f"replaced by version {number}")
        return replace_version(unit, context, record, version=version, superseded=superseded)
    supersede(unit, superseded, f"replaced by version {number}")
    if effective_at is not None:
        return _add_pending_version(unit, context, record, version=version, superseded=superseded)
    version = in_order_of_effective_times(version, after=record.version)
    if _has_backlog(record, context.accepted_at) and version.anchor != record.version.anchor:
        return _replace_after_backlog(unit, context, record, version=version, superseded=superseded)
    return replace_version(unit, context, record, version=version, superseded=superseded)


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
    changed = _continue_unless_stopped(
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


def in_order_of_effective_times(version: Version, *, after: Version) -> Version:
    """Return the version with an effective time that is not before that of the version in force.

    The version in force may have taken effect between the acceptance of the new one and now. The
    order of the effective times is the order in which versions are in force.
    """
    return version if version.since >= after.since else replace(version, effective_at=after.since)


def effective_time(context: CommandContext) -> datetime | None:
    """Return the effective time of a put or a patch, or None for a change at once."""
    command = context.command
    return command.effective_at if isinstance(command, SchedulePut | SchedulePatch) else None


def new_version(context: CommandContext, definition: Definition, *, number: int) -> Version:
    """Return the version. Raise `InvalidCron` and other errors before the unit changes."""
    assert context.schedule_id is not None  # noqa: S101  # a put has a schedule id
    version = Version.create(
        context.schedule_id,
        number,
        tenant=context.tenant,
        definition=definition,
        at=context.accepted_at,
        effective_at=effective_time(context),
        actor=context.actor,
        note=getattr(context.command, "note", None),
        trace=context.trace,
    )
    version.recurrence.next_after(version.since - RESOLUTION)
    return version


def put_in_force(
    unit: UnitOfWork, record: ScheduleRecord, version: Version, *, planned_from: datetime
) -> None:
    """Record a new version that is in force from now on, and where its planning begins."""
    unit.new_versions.append((version, VersionStatus.ACTIVE))
    unit.versions_in_force.append(version)
    unit.handovers.append(
        VersionHandover(
            schedule_id=record.id,
            from_version=record.version.number,
            planned_until=record.planned_until,
            to_version=version.number,
            planned_from=planned_from,
        )
    )


def supersede(unit: UnitOfWork, versions: Sequence[Version], reason: str) -> None:
    """Record that versions were replaced before their effective times."""
    for each in versions:
        key = each.schedule_id, each.number
        unit.version_statuses[key] = (VersionStatus.SUPERSEDED, reason)


def _with_anchor(version: Version, before: Version, context: CommandContext) -> Version:
    """Keep the anchor of the version before if `when` is the same.

    A put of a one-shot schedule with the same `when` starts again.
    """
    when = version.definition.when
    has_same_when = when == before.definition.when
    continues = isinstance(when, Recurring) or isinstance(context.command, SchedulePatch)
    return replace(version, anchor_at=before.anchor) if has_same_when and continues else version


def check_one_shot(version: Version) -> None:
    """Raise `Conflict` if the only time of a new version is before its effective time.

    The run would otherwise start before the change is in force.
    """
    if version.effective_at is None or version.anchor_at is not None:
        return
    once = version.recurrence
    if isinstance(once, Once) and once.at < version.effective_at:
        raise Conflict(
            f"The effective time must not be after {instant_text(once.at)}, "
            "the only time of the schedule.",
            field="effective_at",
            code="after_its_instant",
        )


def _record_missed(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    version: Version,
    delay: timedelta,
) -> ScheduleResponse:
    """Record a version whose effective time has passed. The version in force continues."""
    unit.new_versions.append((version, VersionStatus.MISSED))
    unit.version_statuses[record.id, version.number] = (
        VersionStatus.MISSED,
        f"applied {delay} after its effective time",
    )
    return schedule_response(unit.update(record), "change_missed", context.accepted_at)


def _has_backlog(record: ScheduleRecord, at: datetime) -> bool:
    """Return whether times of the version in force have passed before a ticker planned them."""
    is_active = record.state is ScheduleState.ACTIVE
    return is_active and record.next_at is not None and record.next_at <= at


def _replace_after_backlog(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    version: Version,
    superseded: Sequence[Version],
) -> ScheduleResponse:
    """Replace the version from now on, while the old version plans its own backlog."""
    claimed = unit.claimed_runs(record)
    from_now = replace(version, effective_at=version.since)
    response = _add_pending_version(unit, context, record, version=from_now, superseded=superseded)
    return response.model_copy(
        update={
            "status": "updated",
            "version": version.number,
            "in_flight": [str(run.key) for run in claimed],
            "pending_version": None,
            "effective_at": None,
        }
    )


def _add_pending_version(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    version: Version,
    superseded: Sequence[Version],
) -> ScheduleResponse:
    """Unstage the runs after the effective time, including those of superseded versions.

    A paused or blocked schedule activates the version after the pause or the block.
    """
    since = min([version.since, *(each.since for each in superseded)])
    unstaged = unit.unstage(record, Reason.SUPERSEDED, since=since)
    remaining = (each for each in record.pending if each not in superseded)
    versions = sorted([*remaining, version], key=lambda each: each.since)
    changed = unstaged._replace(pending=tuple(versions), changed_at=context.accepted_at)
    if record.state is ScheduleState.ACTIVE or unstaged.planned_until < record.planned_until:
        changed = _continue_unless_stopped(changed)
    elif not _is_stopped(record):
        changed = changed._replace(next_at=changed.pending_at)
    unit.new_versions.append((version, VersionStatus.PENDING))
    return schedule_response(
        unit.update(changed),
        "change_scheduled",
        context.accepted_at,
        scheduled=version,
        superseded=superseded,
    )


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


def _continue_unless_stopped(record: ScheduleRecord) -> ScheduleRecord:
    """Continue from the cursor, except a paused or blocked schedule, which keeps its state."""
    if _is_stopped(record):
        return record._replace(next_at=record.paused_until)
    return continue_planning(record)


def _is_stopped(record: ScheduleRecord) -> bool:
    return record.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED)


def _moves_to(version: Version, run: LockedRun, at: datetime) -> bool:
    """Return whether a run is overdue, or waits for its jitter at a time of the new version."""
    time = run.key.scheduled_for
    return run.due_at <= at or (time <= at and recurs_at(version.recurrence, time))
