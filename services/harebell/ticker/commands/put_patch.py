"""The handlers of `schedule.put` and `schedule.patch`, which create schedules and versions."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from harebell.contract.commands import SchedulePatch, SchedulePut
from harebell.contract.errors import Conflict, InvalidInput, NotFound
from harebell.contract.message import parse
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.contract.when import WHEN_RULES
from harebell.domain.recurrence import initial_cursor
from harebell.domain.run_states import ScheduleState
from harebell.domain.target_check import literal_warnings
from harebell.domain.validation import check_calendars, check_expiry
from harebell.ticker.commands.changes import change
from harebell.ticker.commands.ended import change_ended, reject_ended, revive, start_again
from harebell.ticker.commands.new_versions import check_one_shot, new_version
from harebell.ticker.model.planning_window import continue_planning
from harebell.ticker.model.request import (
    CommandContext,
    find_schedule,
    reject_stale,
    schedule_response,
)
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionStatus, with_pinned_calendars

# Between the acceptance of a message and its redelivery, if its schedule has ended until then.
REDELIVERY_WINDOW: Final = timedelta(minutes=1)


def put(unit: UnitOfWork, context: CommandContext, command: SchedulePut) -> ScheduleResponse:
    """Create a schedule, or give the schedule with this key a new version."""
    pinned = with_pinned_calendars(command, unit.calendars, context.tenant)
    return _with_warnings(_put(unit, context, pinned), pinned.definition)


def _put(unit: UnitOfWork, context: CommandContext, command: SchedulePut) -> ScheduleResponse:
    definition = command.definition
    record = None if context.schedule_id is None else unit.schedules.get(context.schedule_id)
    if record is None:
        return _create(unit, context, command)
    reject_stale(record, context)
    if context.is_redelivered and repeats_message(unit, record, context, definition=definition):
        return schedule_response(record, "unchanged", context.accepted_at)
    if record.state is ScheduleState.DELETED:
        return _create_again(unit, context, command, deleted=record)
    reject_ended(unit, record, revive=bool(command.revive))
    if command.expected_version is not None:
        _check_expected_version(record, command.expected_version)
    if unit.has_ended(record):
        return revive(unit, context, record, definition=definition)
    if command.expected_version is None:
        before = record.version_at(command.effective_at or context.accepted_at)
        if definition.fingerprint() == before.definition.fingerprint():
            return schedule_response(record, "unchanged", context.accepted_at)
        raise Conflict(
            f"The key has another body in version {before.number}. "
            f'To replace it, set `expected_version` to {before.number} or "any".',
            field="key",
        )
    return change(unit, context, record, definition=definition)


def repeats_message(
    unit: UnitOfWork, record: ScheduleRecord, context: CommandContext, *, definition: Definition
) -> bool:
    """Return whether a redelivered message is the one that the schedule already has.

    The delay of a redelivery begins later, so `when` does not count. A schedule that ended a while
    ago belongs to an equal message before.
    """
    last = record.version.definition
    same = definition.model_copy(update={"when": last.when}).fingerprint() == last.fingerprint()
    age = context.accepted_at - record.changed_at
    return same and (not unit.has_ended(record) or age <= REDELIVERY_WINDOW)


def patch(unit: UnitOfWork, context: CommandContext, command: SchedulePatch) -> ScheduleResponse:
    """Apply a merge patch to the version that will be in force at the effective time."""
    record = find_schedule(unit, context)
    before = record.version_at(command.effective_at or context.accepted_at).definition
    if command.expected_version is not None:
        _check_expected_version(record, command.expected_version)
    if "key" in command.set_:
        raise InvalidInput(
            "A patch must not contain `key`, because a schedule keeps its key.", field="set.key"
        )
    try:
        definition = parse(Definition, patched_definition(before.to_json(), command.set_))
    except InvalidInput as error:
        error.field = f"set.{error.field}"
        raise
    check_calendars(definition.calendars, definition.when, "set.calendars")
    check_expiry(definition.when, definition.expires_after, "set.expires_after")
    definition = with_pinned_calendars(definition, unit.calendars, context.tenant)
    response = _change_definition(unit, context, before, definition=definition, command=command)
    return _with_warnings(response, definition)


def _change_definition(
    unit: UnitOfWork,
    context: CommandContext,
    before: Definition,
    *,
    definition: Definition,
    command: SchedulePatch,
) -> ScheduleResponse:
    record = find_schedule(unit, context)
    if unit.has_ended(record) and command.revive:
        return revive(unit, context, record, definition=definition)
    if definition.fingerprint() == before.fingerprint():
        return schedule_response(record, "unchanged", context.accepted_at)
    if unit.has_ended(record):
        return change_ended(unit, context, record, definition=definition)
    return change(unit, context, record, definition=definition)


def _with_warnings(response: ScheduleResponse, definition: Definition) -> ScheduleResponse:
    warnings = literal_warnings(definition.target)
    return response if warnings is None else response.model_copy(update={"warnings": warnings})


def _check_expected_version(record: ScheduleRecord, expected: int | str) -> None:
    """Accept the version in force, and the newest version that is in force or pending."""
    numbers = [record.version.number, *(each.number for each in record.pending)]
    if expected not in ("any", numbers[0], max(numbers)):
        raise Conflict(
            f"The expected version must be {record.version.number}, not {expected}.",
            field="expected_version",
        )


def patched_definition(definition: dict[str, Any], changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  # JSON
    """Apply a merge patch to a definition. Another rule in `when` replaces the former rule.

    The fields of `when` that both rules have keep their values.
    """
    when, new = definition["when"], changes.get("when")
    if isinstance(new, dict):
        rules = [name for name in WHEN_RULES if new.get(name) is not None]
        if len(rules) == 1 and rules[0] not in when:
            fields = WHEN_RULES[rules[0]].model_fields.items()
            names = {field.alias or name for name, field in fields}
            when = {name: when[name] for name in when if name in names}
    return merge_patch({**definition, "when": when}, changes)


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
    version = _first_version(context, command, number=1)
    cursor = initial_cursor(version.recurrence, version.since)
    record = continue_planning(
        ScheduleRecord(
            version, ScheduleState.ACTIVE, planned_until=cursor, changed_at=context.accepted_at
        )
    )
    unit.new_versions.append((version, VersionStatus.ACTIVE))
    unit.versions_in_force.append(version)
    return schedule_response(unit.update(record), "created", cursor)


def _create_again(
    unit: UnitOfWork, context: CommandContext, command: SchedulePut, *, deleted: ScheduleRecord
) -> ScheduleResponse:
    """Create a schedule with the key of a deleted one.

    The version numbers continue, so that no version and no run of the deleted schedule changes.
    """
    version = _first_version(context, command, number=deleted.next_number)
    return start_again(unit, context, deleted, version=version, status="created")


def _first_version(context: CommandContext, command: SchedulePut, *, number: int) -> Version:
    if isinstance(command.expected_version, int):
        raise NotFound(
            f"The schedule must have version {command.expected_version}, but it does not exist.",
            field="expected_version",
        )
    version = new_version(context, command.definition, number=number)
    check_one_shot(version)
    return version
