"""New versions of a schedule that has not ended: at once, with an effective time, or missed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from harebell.contract.commands import MAX_PENDING_VERSIONS
from harebell.contract.errors import Conflict
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.contract.types import instant_text
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.new_versions import (
    check_one_shot,
    effective_time,
    in_order_of_effective_times,
    new_version,
    supersede,
    with_anchor,
)
from harebell.ticker.commands.replacements import (
    continue_unless_stopped,
    is_stopped,
    replace_version,
)
from harebell.ticker.model.request import CommandContext, schedule_response
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionStatus


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
    version = with_anchor(version, record.version_at(version.since), context)
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
        changed = continue_unless_stopped(changed)
    elif not is_stopped(record):
        changed = changed._replace(next_at=changed.pending_at)
    unit.new_versions.append((version, VersionStatus.PENDING))
    return schedule_response(
        unit.update(changed),
        "change_scheduled",
        context.accepted_at,
        scheduled=version,
        superseded=superseded,
    )
