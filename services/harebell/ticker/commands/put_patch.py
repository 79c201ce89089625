"""Creating schedules and giving them new versions, at once or at a stated time."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from harebell.contract.commands import SchedulePatch, SchedulePut
from harebell.contract.errors import Conflict, InvalidInput, NotFound
from harebell.contract.message import parse
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.contract.when import Recurring
from harebell.domain.recurrence import RESOLUTION, Once, initial_cursor
from harebell.domain.run_states import Reason, ScheduleState
from harebell.ticker.commands.responses import schedule_response
from harebell.ticker.model.planning_cursor import continue_planning
from harebell.ticker.model.request import CommandContext, find_schedule, reject_stale
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus


def put(book: UnitOfWork, asked: CommandContext, command: SchedulePut) -> ScheduleResponse:
    definition = command.definition
    entry = None if asked.schedule_id is None else book.schedules.get(asked.schedule_id)
    if entry is None:
        return _create(book, asked, definition, command)
    reject_stale(entry, asked)
    newest = entry.pending or entry.version
    if command.expected_version is None:
        if definition.fingerprint() == newest.definition.fingerprint():
            return schedule_response(entry, "unchanged", asked.accepted_at)
        raise Conflict(
            f"the key has another body in version {newest.number}; "
            'give expected_version (or "any") to replace it',
            field="key",
        )
    if command.expected_version not in ("any", entry.version.number, newest.number):
        raise Conflict(f"is at version {entry.version.number}", field="expected_version")
    return _change(book, asked, entry, definition, command.effective_at)


def patch(book: UnitOfWork, asked: CommandContext, command: SchedulePatch) -> ScheduleResponse:
    """A merge patch of the newest version, pending or in force."""
    entry = find_schedule(book, asked)
    newest = entry.pending or entry.version
    if command.expected_version not in (None, entry.version.number, newest.number):
        raise Conflict(f"is at version {entry.version.number}", field="expected_version")
    if "key" in command.set_:
        raise InvalidInput("a schedule keeps its key", field="set.key")
    try:
        definition = parse(Definition, merge_patch(newest.definition.to_json(), command.set_))
    except InvalidInput as error:
        error.field = f"set.{error.field}"
        raise
    if definition.fingerprint() == newest.definition.fingerprint():
        return schedule_response(entry, "unchanged", asked.accepted_at)
    return _change(book, asked, entry, definition, command.effective_at)


def merge_patch(value: Any, change: Any) -> Any:  # noqa: ANN401  # JSON
    """RFC 7396: objects are merged, null removes, anything else replaces."""
    if not isinstance(change, dict):
        return change
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in change.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), item)
    return result


def _create(
    book: UnitOfWork, asked: CommandContext, definition: Definition, command: SchedulePut
) -> ScheduleResponse:
    if isinstance(command.expected_version, int):
        raise NotFound("there is no such schedule", field="expected_version")
    version = _version(asked, definition, 1, command.effective_at)
    _refuse_unowed(version)
    cursor = initial_cursor(version.recurrence, version.since)
    entry = continue_planning(
        ScheduleRecord(
            version, ScheduleState.ACTIVE, planned_until=cursor, changed_at=asked.accepted_at
        )
    )
    book.new_versions.append((version, VersionStatus.ACTIVE))
    book.versions_in_force.append(version)
    return schedule_response(book.update(entry), "created", cursor)


def _change(
    book: UnitOfWork,
    asked: CommandContext,
    entry: ScheduleRecord,
    definition: Definition,
    effective_at: datetime | None,
) -> ScheduleResponse:
    """A change that waited for its time is overtaken by any later one."""
    if effective_at is not None and effective_at <= asked.accepted_at:
        raise Conflict("its time has passed", field="effective_at", code="missed")
    number = entry.next_number
    version = _anchored(
        _version(asked, definition, number, effective_at), entry.pending or entry.version, asked
    )
    _refuse_unowed(version)
    if effective_at is not None and asked.applied_at and effective_at <= asked.applied_at:
        return _miss(book, asked, entry._replace(last_number=number), version, effective_at)
    if entry.pending is not None:
        book.version_statuses[entry.id, entry.pending.number] = (
            VersionStatus.SUPERSEDED,
            f"overtaken by version {number}",
        )
    if effective_at is not None:
        return _postpone(book, asked, entry, version)
    if _has_backlog(entry, asked.accepted_at) and version.anchor != entry.version.anchor:
        return _replace_from_now(book, asked, entry, version)
    return _replace(book, asked, entry._replace(pending=None), version)


def _refuse_unowed(version: Version) -> None:
    """A new one-shot for before its version's time would run before the change is in force."""
    if version.effective_at is None or version.anchor_at is not None:
        return
    once = version.recurrence
    if isinstance(once, Once) and once.at < version.effective_at:
        reason = "comes after the only instant of `when`"
        raise Conflict(reason, field="effective_at", code="after_its_instant")


def _miss(
    book: UnitOfWork,
    asked: CommandContext,
    entry: ScheduleRecord,
    version: Version,
    effective_at: datetime,
) -> ScheduleResponse:
    """Its time has passed by the instants of the version in force, and that goes on."""
    assert asked.applied_at is not None  # noqa: S101  # or it could not be late
    late = asked.applied_at - effective_at
    book.new_versions.append((version, VersionStatus.MISSED))
    book.version_statuses[entry.id, version.number] = (
        VersionStatus.MISSED,
        f"came {late} after its time",
    )
    return schedule_response(book.update(entry), "change_missed", asked.accepted_at)


def _has_backlog(entry: ScheduleRecord, at: datetime) -> bool:
    """Instants of the version in force that no ticker has handed over in time."""
    active = entry.state is ScheduleState.ACTIVE
    return active and entry.next_at is not None and entry.next_at <= at


def _replace_from_now(
    book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord, version: Version
) -> ScheduleResponse:
    """Each instant by the version in force at it: the old one's backlog is planned by itself."""
    claimed = book.claimed_runs(entry)
    from_now = replace(version, effective_at=asked.accepted_at)
    told = _postpone(book, asked, entry, from_now)
    now_in_force = {
        "status": "updated",
        "version": version.number,
        "in_flight": [str(run.key) for run in claimed],
        "pending_version": None,
        "effective_at": None,
    }
    return told.model_copy(update=now_in_force)


def _anchored(version: Version, before: Version, asked: CommandContext) -> Version:
    """The same `when` goes on as it was; but a one-shot that is put again is meant anew."""
    when = version.definition.when
    is_same = when == before.definition.when
    is_going_on = isinstance(when, Recurring) or isinstance(asked.command, SchedulePatch)
    return replace(version, anchor_at=before.anchor) if is_same and is_going_on else version


def _postpone(
    book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord, version: Version
) -> ScheduleResponse:
    """What has been handed over beyond that time is taken back, also of a change that waited.

    It waits until a pause or a hold is over.
    """
    since = min(filter(None, [version.since, entry.pending_at]))
    withdrawn = book.unstage(entry, Reason.SUPERSEDED, since=since)
    pending = withdrawn._replace(pending=version, changed_at=asked.accepted_at)
    if entry.state is ScheduleState.ACTIVE or withdrawn.planned_until < entry.planned_until:
        pending = _going_on(pending)
    elif not _is_stopped(entry):
        pending = pending._replace(next_at=version.since)
    book.new_versions.append((version, VersionStatus.PENDING))
    return schedule_response(book.update(pending), "change_scheduled", asked.accepted_at)


def _replace(
    book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord, version: Version
) -> ScheduleResponse:
    """The new version owes what it owes from now on; what is overdue takes it over as it is.

    With the same times it goes on where the old one stood: what that left open is still owed.
    """
    claimed = book.claimed_runs(entry)
    for run in book.open_runs_of(entry):
        if run.is_unattempted and _takes_over(run, version, asked.accepted_at):
            book.move_to_version(run, version)
    same_times = version.definition.when == entry.version.definition.when
    withdrawn = book.unstage(entry, Reason.SUPERSEDED)
    first = cursor = initial_cursor(version.recurrence, asked.accepted_at)
    if same_times and not isinstance(version.recurrence, Once):
        revived = entry.state is ScheduleState.CANCELLED
        cursor = max(withdrawn.planned_until, first) if revived else withdrawn.planned_until
    changed = withdrawn._replace(
        version=version,
        planned_until=cursor,
        changed_at=asked.accepted_at,
        dispatched=withdrawn.dispatched if same_times else 0,
    )
    changed = _going_on(changed)
    book.new_versions.append((version, VersionStatus.ACTIVE))
    book.versions_in_force.append(version)
    book.handovers.append(
        VersionHandover(
            entry.id, entry.version.number, withdrawn.planned_until, version.number, cursor
        )
    )
    return schedule_response(book.update(changed), "updated", max(first, cursor), claimed)


def _going_on(entry: ScheduleRecord) -> ScheduleRecord:
    """A paused or held schedule stays so; any other goes on, from where planning stands."""
    if _is_stopped(entry):
        return entry._replace(next_at=entry.paused_until)
    return continue_planning(entry)


def _is_stopped(entry: ScheduleRecord) -> bool:
    return entry.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED)


def _takes_over(run: LockedRun, version: Version, at: datetime) -> bool:
    """What is overdue; and what waits out its jitter, if the new version owes that instant too."""
    instant = run.key.scheduled_for
    return run.due_at <= at or (instant <= at and version.includes(instant))


def _version(
    asked: CommandContext, definition: Definition, number: int, effective_at: datetime | None
) -> Version:
    """Raises `InvalidCron` and the like here, before anything is changed."""
    assert asked.schedule_id is not None  # noqa: S101  # a put names its schedule
    version = Version.create(
        asked.schedule_id,
        number,
        tenant=asked.tenant,
        definition=definition,
        at=asked.accepted_at,
        effective_at=effective_at,
        actor=asked.actor,
        note=getattr(asked.command, "note", None),
    )
    version.recurrence.next_after(version.since - RESOLUTION)
    return version
