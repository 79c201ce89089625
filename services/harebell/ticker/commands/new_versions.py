"""New versions: their creation, their order, and the records that put them in force."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from harebell.contract.commands import SchedulePatch, SchedulePut
from harebell.contract.errors import Conflict
from harebell.contract.schedule import Definition
from harebell.contract.types import instant_text
from harebell.contract.when import Recurring
from harebell.domain.recurrence import RESOLUTION, Once
from harebell.ticker.model.request import CommandContext
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus


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


def in_order_of_effective_times(version: Version, *, after: Version) -> Version:
    """Return the version with an effective time that is not before that of the version in force.

    The version in force may have taken effect between the acceptance of the new one and now. The
    order of the effective times is the order in which versions are in force.
    """
    return version if version.since >= after.since else replace(version, effective_at=after.since)


def with_anchor(version: Version, before: Version, context: CommandContext) -> Version:
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
