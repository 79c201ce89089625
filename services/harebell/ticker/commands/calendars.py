"""The handlers of `calendar.put` and `calendar.delete`, which change planned runs."""

from dataclasses import replace

from harebell.contract.calendar import (
    MAX_CALENDARS,
    CalendarDelete,
    CalendarPut,
    CalendarResponse,
)
from harebell.contract.commands import SchedulePatch
from harebell.contract.errors import Conflict, InvalidInput, NotFound, Rejected
from harebell.contract.schedule import SchedulingPolicy
from harebell.domain.run_states import ScheduleState
from harebell.ticker.commands.changes import change
from harebell.ticker.commands.new_versions import new_version
from harebell.ticker.commands.replacements import replace_version
from harebell.ticker.model.request import CommandContext
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import StoredCalendar, with_pinned_calendars


def put_calendar(
    unit: UnitOfWork, context: CommandContext, command: CalendarPut
) -> CalendarResponse:
    """Create or replace a calendar, and give the schedules that use it a new version."""
    before = unit.calendars.get((context.tenant, command.name))
    _check(before, context, command.expected_version)
    is_new = before is None or before.is_deleted
    if before is not None and not is_new and before.content == command.content:
        return CalendarResponse(name=command.name, version=before.version, status="unchanged")
    if is_new:
        _check_number(unit, context.tenant)
    calendar = StoredCalendar(
        tenant=context.tenant,
        name=command.name,
        version=1 if before is None else before.version + 1,
        content=command.content,
        accepted_at=context.accepted_at,
        actor=context.actor,
        note=command.note,
    )
    unit.update_calendar(calendar)
    affected, rejected = 0, {}
    for record in _users(unit, context.tenant, command.name):
        try:
            _apply_to(unit, context, record, name=command.name)
        except Rejected as error:
            rejected[str(record.id)] = error.reason
        else:
            affected += 1
    return CalendarResponse(
        name=command.name,
        version=calendar.version,
        status="created" if is_new else "updated",
        affected=affected,
        rejected=rejected,
    )


def delete_calendar(
    unit: UnitOfWork, context: CommandContext, command: CalendarDelete
) -> CalendarResponse:
    """Delete a calendar. Raise `Conflict` if a schedule uses it."""
    before = unit.calendars.get((context.tenant, command.name))
    _check(before, context, None)
    if before is None or before.is_deleted:
        raise NotFound(f"The calendar {command.name} does not exist.", field="name")
    users = _users(unit, context.tenant, command.name)
    if users:
        number = "1 schedule uses" if len(users) == 1 else f"{len(users)} schedules use"
        raise Conflict(
            f"No schedule may use the calendar, but {number} it. Change or cancel them first.",
            field="name",
            code="calendar_in_use",
        )
    deleted = replace(
        before,
        version=before.version + 1,
        is_deleted=True,
        accepted_at=context.accepted_at,
        actor=context.actor,
        note=command.note,
    )
    unit.update_calendar(deleted)
    return CalendarResponse(name=deleted.name, version=deleted.version, status="deleted")


def uses_calendar(record: ScheduleRecord, name: str) -> bool:
    """Return whether the version in force or a pending version uses the calendar."""
    return any(_is_named(each.policy, name) for each in (record.version, *record.pending))


def _is_named(policy: SchedulingPolicy, name: str) -> bool:
    return any(each.name == name for each in policy.pinned_calendars)


def _users(unit: UnitOfWork, tenant: str, name: str) -> list[ScheduleRecord]:
    """Return the schedules that have not ended and use the calendar, in the order of their ids."""
    found = [
        record
        for record in unit.schedules.values()
        if record.version.tenant == tenant
        and record.state is not ScheduleState.DELETED
        and not unit.has_ended(record)
        and uses_calendar(record, name)
    ]
    return sorted(found, key=lambda each: each.id.int)


def _check(before: StoredCalendar | None, context: CommandContext, expected: int | None) -> None:
    """Raise `Conflict` for a command that is older than the calendar or expects another version."""
    if before is not None and context.accepted_at < before.accepted_at:
        raise Conflict(
            "The command must be newer than the last applied change of the calendar.", code="stale"
        )
    found = 0 if before is None else before.version
    if expected is not None and expected != found:
        raise Conflict(
            f"The expected version must be {found}, not {expected}.", field="expected_version"
        )


def _check_number(unit: UnitOfWork, tenant: str) -> None:
    found = [
        each for each in unit.calendars.values() if each.tenant == tenant and not each.is_deleted
    ]
    if len(found) >= MAX_CALENDARS:
        reason = f"A tenant must have at most {MAX_CALENDARS} calendars, and this one has them all."
        raise InvalidInput(reason, field="name", code="too_many")


def _apply_to(
    unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, name: str
) -> None:
    """Give a schedule new versions with the changed calendar, now and at each effective time.

    The anchor stays, so the calendar alone changes the planned times.
    """
    accepted_at = max(context.accepted_at, record.changed_at)
    of_schedule = context._replace(schedule_id=record.id, accepted_at=accepted_at)
    pending = [each for each in record.pending if _is_named(each.policy, name)]
    if _is_named(record.version.policy, name):
        old = record.version
        definition = with_pinned_calendars(old.definition, unit.calendars, context.tenant)
        version = new_version(of_schedule, definition, number=record.next_number)
        version = replace(version, anchor_at=old.anchor)
        if version.since < old.since:
            version = replace(version, effective_at=old.since)
        replace_version(unit, of_schedule, record, version=version, superseded=[])
    for each in pending:
        command = SchedulePatch.model_validate(
            {"id": record.id, "set": {}, "effective_at": each.since}
        )
        definition = with_pinned_calendars(each.definition, unit.calendars, context.tenant)
        change(
            unit,
            of_schedule._replace(command=command),
            unit.schedules[record.id],
            definition=definition,
        )
