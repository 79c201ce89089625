"""The handlers of `schedule.put` and `schedule.patch`, which create schedules and versions."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from harebell.contract.commands import SchedulePatch, SchedulePut
from harebell.contract.errors import Conflict, InvalidInput, NotFound
from harebell.contract.message import parse
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.contract.types import instant_text
from harebell.contract.when import Recurring
from harebell.domain.recurrence import RESOLUTION, Once, initial_cursor, recurs_at
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.responses import schedule_response
from harebell.ticker.model.planning_cursor import continue_planning
from harebell.ticker.model.request import CommandContext, find_schedule, reject_stale
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus


def put(unit: UnitOfWork, context: CommandContext, command: SchedulePut) -> ScheduleResponse:
    """Create a schedule, or give the schedule with this key a new version."""
    definition = command.definition
    record = None if context.schedule_id is None else unit.schedules.get(context.schedule_id)
    if record is None:
        return _create(unit, context, command)
    reject_stale(record, context)
    newest = record.pending or record.version
    if command.expected_version is None:
        if definition.fingerprint() == newest.definition.fingerprint():
            return schedule_response(record, "unchanged", context.accepted_at)
        raise Conflict(
            f"The key has another body in version {newest.number}. "
            f'To replace it, set `expected_version` to {newest.number} or "any".',
            field="key",
        )
    _check_expected_version(record, command.expected_version)
    return _change(unit, context, record, definition=definition, effective_at=command.effective_at)


def patch(unit: UnitOfWork, context: CommandContext, command: SchedulePatch) -> ScheduleResponse:
    """Apply a merge patch to the newest version, which is the pending version or in force."""
    record = find_schedule(unit, context)
    newest = record.pending or record.version
    if command.expected_version is not None:
        _check_expected_version(record, command.expected_version)
    if "key" in command.set_:
        raise InvalidInput(
            "A patch must not contain `key`, because a schedule keeps its key.", field="set.key"
        )
    try:
        definition = parse(Definition, merge_patch(newest.definition.to_json(), command.set_))
    except InvalidInput as error:
        error.field = f"set.{error.field}"
        raise
    if definition.fingerprint() == newest.definition.fingerprint():
        return schedule_response(record, "unchanged", context.accepted_at)
    return _change(unit, context, record, definition=definition, effective_at=command.effective_at)


def _check_expected_version(record: ScheduleRecord, expected: int | str) -> None:
    newest = record.pending or record.version
    if expected not in ("any", record.version.number, newest.number):
        raise Conflict(
            f"The expected version must be {record.version.number}, not {expected}.",
            field="expected_version",
        )


def merge_patch(value: Any, change: Any) -> Any:  # noqa: ANN401  # JSON
    """Apply a JSON merge patch (RFC 7396): merge objects, remove nulls, replace other values."""
    if not isinstance(change, dict):
        return change
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in change.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), item)
    return result


def _create(unit: UnitOfWork, context: CommandContext, command: SchedulePut) -> ScheduleResponse:
    if isinstance(command.expected_version, int):
        raise NotFound(
            f"The schedule must have version {command.expected_version}, but it does not exist.",
            field="expected_version",
        )
    version = _new_version(context, command.definition, number=1, effective_at=command.effective_at)
    _check_one_shot(version)
    cursor = initial_cursor(version.recurrence, version.since)
    record = continue_planning(
        ScheduleRecord(
            version, ScheduleState.ACTIVE, planned_until=cursor, changed_at=context.accepted_at
        )
    )
    unit.new_versions.append((version, VersionStatus.ACTIVE))
    unit.versions_in_force.append(version)
    return schedule_response(unit.update(record), "created", cursor)


def _change(
    unit: UnitOfWork,
    context: CommandContext,
    record: ScheduleRecord,
    *,
    definition: Definition,
    effective_at: datetime | None,
) -> ScheduleResponse:
    """Give the schedule a new version, which supersedes a pending version."""
    if effective_at is not None and effective_at <= context.accepted_at:
        raise Conflict(
            f"The effective time must be in the future, not {instant_text(effective_at)}.",
            field="effective_at",
            code="missed",
        )
    number = record.next_number
    version = _with_anchor(
        _new_version(context, definition, number=number, effective_at=effective_at),
        record.pending or record.version,
        context,
    )
    _check_one_shot(version)
    if effective_at is not None and context.applied_at and effective_at <= context.applied_at:
        return _record_missed(
            unit,
            context,
            record._replace(last_number=number),
            version=version,
            delay=context.applied_at - effective_at,
        )
    if record.pending is not None:
        unit.version_statuses[record.id, record.pending.number] = (
            VersionStatus.SUPERSEDED,
            f"replaced by version {number}",
        )
    if effective_at is not None:
        return _set_pending_version(unit, context, record, version=version)
    if _has_backlog(record, context.accepted_at) and version.anchor != record.version.anchor:
        return _replace_after_backlog(unit, context, record, version=version)
    return _replace_version(unit, context, record._replace(pending=None), version=version)


def _new_version(
    context: CommandContext, definition: Definition, *, number: int, effective_at: datetime | None
) -> Version:
    """Return the version. Raise `InvalidCron` and other errors before the unit changes."""
    assert context.schedule_id is not None  # noqa: S101  # a put has a schedule id
    version = Version.create(
        context.schedule_id,
        number,
        tenant=context.tenant,
        definition=definition,
        at=context.accepted_at,
        effective_at=effective_at,
        actor=context.actor,
        note=getattr(context.command, "note", None),
    )
    version.recurrence.next_after(version.since - RESOLUTION)
    return version


def _with_anchor(version: Version, before: Version, context: CommandContext) -> Version:
    """Keep the anchor of the version before if `when` is the same.

    A put of a one-shot schedule with the same `when` starts again.
    """
    when = version.definition.when
    has_same_when = when == before.definition.when
    continues = isinstance(when, Recurring) or isinstance(context.command, SchedulePatch)
    return replace(version, anchor_at=before.anchor) if has_same_when and continues else version


def _check_one_shot(version: Version) -> None:
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
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, version: Version
) -> ScheduleResponse:
    """Replace the version from now on, while the old version plans its own backlog."""
    claimed = unit.claimed_runs(record)
    from_now = replace(version, effective_at=context.accepted_at)
    response = _set_pending_version(unit, context, record, version=from_now)
    return response.model_copy(
        update={
            "status": "updated",
            "version": version.number,
            "in_flight": [str(run.key) for run in claimed],
            "pending_version": None,
            "effective_at": None,
        }
    )


def _set_pending_version(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, version: Version
) -> ScheduleResponse:
    """Unstage the runs after the effective time, including those of another pending version.

    A paused or blocked schedule activates the version after the pause or the block.
    """
    since = min(filter(None, [version.since, record.pending_at]))
    unstaged = unit.unstage(record, Reason.SUPERSEDED, since=since)
    pending = unstaged._replace(pending=version, changed_at=context.accepted_at)
    if record.state is ScheduleState.ACTIVE or unstaged.planned_until < record.planned_until:
        pending = _continue_unless_stopped(pending)
    elif not _is_stopped(record):
        pending = pending._replace(next_at=version.since)
    unit.new_versions.append((version, VersionStatus.PENDING))
    return schedule_response(unit.update(pending), "change_scheduled", context.accepted_at)


def _replace_version(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, version: Version
) -> ScheduleResponse:
    """Replace the version in force at once, and move overdue runs to the new version.

    With the same times, planning continues from the old cursor.
    """
    claimed = unit.claimed_runs(record)
    for run in unit.open_runs_of(record):
        if run.is_unattempted and _moves_to(version, run, context.accepted_at):
            unit.move_to_version(run, version)
    has_same_times = version.definition.when == record.version.definition.when
    unstaged = unit.unstage(record, Reason.SUPERSEDED)
    first = cursor = initial_cursor(version.recurrence, context.accepted_at)
    if has_same_times and not isinstance(version.recurrence, Once):
        is_revived = record.state is ScheduleState.CANCELLED
        cursor = max(unstaged.planned_until, first) if is_revived else unstaged.planned_until
    changed = _continue_unless_stopped(
        unstaged._replace(
            version=version,
            planned_until=cursor,
            changed_at=context.accepted_at,
            dispatched=unstaged.dispatched if has_same_times else 0,
        )
    )
    unit.new_versions.append((version, VersionStatus.ACTIVE))
    unit.versions_in_force.append(version)
    unit.handovers.append(
        VersionHandover(
            schedule_id=record.id,
            from_version=record.version.number,
            planned_until=unstaged.planned_until,
            to_version=version.number,
            planned_from=cursor,
        )
    )
    return schedule_response(unit.update(changed), "updated", max(first, cursor), in_flight=claimed)


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
