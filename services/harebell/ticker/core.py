"""What a command does to the book: creating, changing, pausing, cancelling. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from harebell.contract.answers import RunAnswer, ScheduleAnswer
from harebell.contract.commands import (
    Addressed,
    RunCancel,
    ScheduleCancel,
    ScheduleCommand,
    SchedulePause,
    SchedulePut,
    ScheduleResume,
    ScheduleTrigger,
)
from harebell.contract.errors import Conflict, NotFound, Rejected
from harebell.contract.identity import RunKey
from harebell.contract.scalars import cut
from harebell.contract.schedule import Definition
from harebell.kernel.ledger import Reason, RunState, ScheduleState
from harebell.kernel.occurrences import TICK, Once, first_cursor, preview, timetable
from harebell.ticker.book import Book, Entry, OpenRun, Version

SHOWN: Final = 3  # next instants that an answer tells

Answer: TypeAlias = ScheduleAnswer | RunAnswer


@dataclass(frozen=True, slots=True)
class Asked:
    """One checked command, and who asked when."""

    tenant: str
    command: Addressed
    schedule_id: UUID
    accepted_at: datetime
    actor: str | None


def apply(book: Book, asked: Asked) -> Answer:
    """Change the book; raises `Rejected` and leaves it as it was when the command cannot be."""
    match asked.command:
        case SchedulePut() as command:
            return _put(book, asked, command)
        case RunCancel() as command:
            return _cancel_run(book, asked, command)
        case ScheduleCommand() as command:
            entry = _known(book, asked)
            return _VERBS[type(command)](book, asked, entry)
        case command:
            raise Rejected(f"{type(command).__name__} is not a ticker's", code="unknown_command")


def _known(book: Book, asked: Asked) -> Entry:
    entry = book.entries.get(asked.schedule_id)
    if entry is None or entry.version.tenant != asked.tenant:
        raise NotFound("there is no such schedule")
    _refuse_stale(entry, asked)
    return entry


def _refuse_stale(entry: Entry, asked: Asked) -> None:
    if asked.accepted_at < entry.changed_at:
        raise Conflict("a later change has been applied already", code="stale")


def _put(book: Book, asked: Asked, command: SchedulePut) -> ScheduleAnswer:
    definition = Definition.model_validate(
        command.model_dump(include=set(Definition.model_fields), exclude_unset=True, by_alias=True)
    )
    entry = book.entries.get(asked.schedule_id)
    if entry is None:
        return _create(book, asked, definition, command)
    _refuse_stale(entry, asked)
    if command.expected_version is None:
        if definition.fingerprint() == entry.version.definition.fingerprint():
            return _answer(entry, "unchanged", asked.accepted_at)
        raise Conflict(
            f"the key has another body in version {entry.version.number}; "
            'give expected_version (or "any") to replace it',
            field="key",
        )
    if command.expected_version not in ("any", entry.version.number):
        raise Conflict(f"is at version {entry.version.number}", field="expected_version")
    return _replace(book, asked, entry, definition)


def _create(
    book: Book, asked: Asked, definition: Definition, command: SchedulePut
) -> ScheduleAnswer:
    if isinstance(command.expected_version, int):
        raise NotFound("there is no such schedule", field="expected_version")
    version = _version(asked, definition, 1)
    cursor = first_cursor(version.timetable, asked.accepted_at)
    entry = Entry(
        version,
        ScheduleState.ACTIVE,
        planned_to=cursor,
        changed_at=asked.accepted_at,
        next_at=version.timetable.next_after(cursor),
    )
    book.new_versions.append(version)
    return _answer(book.write(entry), "created", cursor)


def _replace(book: Book, asked: Asked, entry: Entry, definition: Definition) -> ScheduleAnswer:
    """The new version owes what it owes from now on; what is overdue takes it over as it is."""
    version = _version(asked, definition, entry.version.number + 1)
    claimed = book.claimed(entry)
    for run in book.open_of(entry):
        if run.untouched and _takes_over(run, version, asked.accepted_at):
            book.renew(run, version)
    same_times = definition.when == entry.version.definition.when
    withdrawn = book.withdraw(entry, Reason.SUPERSEDED)
    cursor = first_cursor(version.timetable, asked.accepted_at)
    if same_times and not isinstance(version.timetable, Once):
        cursor = max(withdrawn.planned_to, cursor)
    paused = entry.state is ScheduleState.PAUSED
    changed = replace(
        withdrawn,
        version=version,
        state=ScheduleState.PAUSED if paused else ScheduleState.ACTIVE,
        planned_to=cursor,
        changed_at=asked.accepted_at,
        dispatched=withdrawn.dispatched if same_times else 0,
        reason=entry.reason if paused else None,
        next_at=None if paused else version.timetable.next_after(cursor),
    )
    book.new_versions.append(version)
    return _answer(book.write(changed), "updated", cursor, claimed)


def _takes_over(run: OpenRun, version: Version, at: datetime) -> bool:
    """What is overdue; and what waits out its jitter, if the new version owes that instant too."""
    instant = run.key.scheduled_for
    return run.due_at <= at or (instant <= at and version.owes(instant))


def _version(asked: Asked, definition: Definition, number: int) -> Version:
    """Raises `InvalidCron` and the like here, before anything is changed."""
    timetable(definition, asked.schedule_id, asked.accepted_at)
    version = Version.of(
        asked.schedule_id, number, tenant=asked.tenant, definition=definition, at=asked.accepted_at
    )
    return replace(version, actor=asked.actor)


def _pause(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    if entry.state not in (ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.PARKED):
        raise Conflict(f"is {entry.state}", code="not_active")
    claimed = book.claimed(entry)
    book.stop(claimed, Reason.PAUSED)
    withdrawn = book.withdraw(book.untrigger(entry, Reason.PAUSED), Reason.PAUSED)
    return _halt(book, asked, withdrawn, ScheduleState.PAUSED, claimed)


def _cancel(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    claimed = book.claimed(entry)
    book.stop(claimed, Reason.CANCELLED)
    kept = book.untrigger(entry, Reason.CANCELLED)
    withdrawn = book.withdraw(kept, Reason.CANCELLED, begun=True)
    return _halt(book, asked, withdrawn, ScheduleState.CANCELLED, claimed)


def _halt(
    book: Book, asked: Asked, entry: Entry, state: ScheduleState, claimed: list[OpenRun]
) -> ScheduleAnswer:
    note = asked.command.note if isinstance(asked.command, ScheduleCommand) else None
    halted = replace(entry, state=state, next_at=None, changed_at=asked.accepted_at, reason=note)
    return _answer(book.write(halted), state.value, asked.accepted_at, claimed)


def _resume(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    """From where planning stood: the catch-up policy decides about the gap."""
    if entry.state is ScheduleState.ACTIVE:
        return _answer(entry, "resumed", asked.accepted_at)
    if entry.state not in (ScheduleState.PAUSED, ScheduleState.PARKED):
        raise Conflict(f"is {entry.state}", code="not_paused")
    next_at = entry.version.timetable.next_after(entry.planned_to)
    book.stop(book.claimed(entry), None)
    resumed = replace(
        entry,
        state=ScheduleState.ACTIVE if next_at else ScheduleState.COMPLETED,
        next_at=next_at,
        changed_at=asked.accepted_at,
        reason=None,
    )
    return _answer(book.write(resumed), "resumed", entry.planned_to)


def _trigger(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    """One run at acceptance; where that instant is taken, at the next free one."""
    if entry.state is ScheduleState.CANCELLED:
        raise Conflict("is cancelled", code="not_active")
    instant = cut(asked.accepted_at)
    while instant in entry.open_runs or RunKey(instant, entry.id) in book.taken:
        instant += TICK
    triggered = book.write(
        replace(entry, open_runs=(*entry.open_runs, instant), changed_at=asked.accepted_at)
    )
    book.triggered.append((entry.version, instant))
    answer = _answer(triggered, "triggered", asked.accepted_at)
    return answer.model_copy(update={"run_id": str(RunKey(instant, entry.id))})


_VERBS: Final[dict[type, Callable[[Book, Asked, Entry], ScheduleAnswer]]] = {
    SchedulePause: _pause,
    ScheduleResume: _resume,
    ScheduleCancel: _cancel,
    ScheduleTrigger: _trigger,
}


def _cancel_run(book: Book, asked: Asked, command: RunCancel) -> RunAnswer:
    key = RunKey.parse(command.run_id)
    entry = _known(book, asked)
    run = book.runs.get(key)
    if run is None:
        raise NotFound("there is no such open run", field="run_id")
    if run.state is RunState.RUNNING:
        book.stop([run], Reason.CANCELLED)
        return RunAnswer(run_id=command.run_id, status="in_flight", state=run.state)
    book.cancel(run, Reason.CANCELLED)
    left = tuple(moment for moment in entry.open_runs if moment != key.scheduled_for)
    book.write(replace(entry, open_runs=left))
    return RunAnswer(run_id=command.run_id, status="cancelled", state=RunState.CANCELLED)


def _answer(
    entry: Entry, status: str, cursor: datetime, in_flight: list[OpenRun] | None = None
) -> ScheduleAnswer:
    active = entry.state is ScheduleState.ACTIVE
    return ScheduleAnswer(
        id=entry.id,
        key=entry.version.definition.key,
        version=entry.version.number,
        status=status,
        state=entry.state,
        next_at=preview(entry.version.timetable, cursor, SHOWN) if active else [],
        in_flight=[str(run.key) for run in in_flight or []],
    )
