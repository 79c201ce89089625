"""Single instants: runs beside the timetable, runs taken out of it, runs cancelled or resolved."""

from datetime import datetime
from itertools import takewhile
from typing import Final

from harebell.contract.commands import (
    Resolution,
    RunCancel,
    RunResolve,
    ScheduleBackfill,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import Conflict, InvalidInput, NotFound
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse, ScheduleResponse
from harebell.contract.types import truncate_ms
from harebell.domain.recurrence import RESOLUTION, next_times
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.commands.responses import schedule_response
from harebell.ticker.model.planning_cursor import continue_planning, resume_planning
from harebell.ticker.model.request import CommandContext, find_schedule
from harebell.ticker.model.unit_of_work import (
    ManualRun,
    ManualRunOrigin,
    ScheduleRecord,
    UnitOfWork,
)

MAX_SKIPS: Final = 100  # instants of one schedule that are taken out ahead of time


def trigger(book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord) -> ScheduleResponse:
    """One run at acceptance; where that instant is taken, at the next free one."""
    if entry.state is ScheduleState.CANCELLED:
        raise Conflict("is cancelled", code="not_active")
    overlap = asked.command.overlap if isinstance(asked.command, ScheduleTrigger) else None
    instant = truncate_ms(asked.accepted_at)
    while instant in entry.open_runs or RunKey(instant, entry.id) in book.ended_runs:
        instant += RESOLUTION
    extra = ManualRun(entry.version, instant, ManualRunOrigin.TRIGGER, overlap)
    changed = _with(book, asked, entry, [extra])
    told = schedule_response(changed, "triggered", asked.accepted_at)
    return told.model_copy(update={"run_id": str(RunKey(instant, entry.id))})


def backfill(book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord) -> ScheduleResponse:
    """Runs that the timetable had; those that are on record already stay as they are."""
    command = asked.command
    assert isinstance(command, ScheduleBackfill)  # noqa: S101  # by its verb
    table = entry.version.recurrence
    had = next_times(table, command.from_ - RESOLUTION, command.max + 1)
    instants = list(takewhile(lambda instant: instant <= command.to, had))
    if len(instants) > command.max:
        raise InvalidInput(f"more than {command.max} runs", field="max", code="too_many")
    if instants and instants[-1] > asked.accepted_at:
        raise InvalidInput("lies in the future", field="to")
    runs = [str(RunKey(instant, entry.id)) for instant in instants]
    if command.dry_run:
        return schedule_response(entry, "previewed", asked.accepted_at).model_copy(
            update={"runs": runs}
        )
    extras = [ManualRun(entry.version, instant, ManualRunOrigin.BACKFILL) for instant in instants]
    changed = _with(book, asked, entry, extras)
    return schedule_response(changed, "backfilled", asked.accepted_at).model_copy(
        update={"runs": runs}
    )


def _with(
    book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord, extras: list[ManualRun]
) -> ScheduleRecord:
    """The schedule with runs that its timetable does not owe; they do not count as dispatched."""
    book.manual_runs += extras
    instants = dict.fromkeys([*entry.open_runs, *(extra.scheduled_for for extra in extras)])
    return book.update(entry._replace(open_runs=tuple(instants), changed_at=asked.accepted_at))


def skip(book: UnitOfWork, asked: CommandContext, entry: ScheduleRecord) -> ScheduleResponse:
    """The run of one instant will not be; if it is staged, it is taken back."""
    command = asked.command
    assert isinstance(command, ScheduleSkip)  # noqa: S101  # by its verb
    at = command.at
    if not entry.version_at(at).includes(at):
        raise InvalidInput("is not an instant of its timetable", field="at", code="not_due")
    run = book.open_runs.get(RunKey(at, entry.id))
    if run is not None and run.is_unattempted:
        book.cancel(run, Reason.MANUAL)
        changed = _without(entry, at)
        if at > entry.planned_until:  # staged ahead for a change, and planned again at its time
            changed = changed._replace(skips=_noted(entry, at, asked.accepted_at))
        elif run.is_from_recurrence:
            changed = _with_room(changed._replace(dispatched=max(0, entry.dispatched - 1)))
    elif at <= entry.planned_until:
        raise Conflict("has been handed over already", field="at", code="too_late")
    else:
        changed = entry._replace(skips=_noted(entry, at, asked.accepted_at))
    written = book.update(changed._replace(changed_at=asked.accepted_at))
    return schedule_response(written, "skipped", asked.accepted_at)


def _without(entry: ScheduleRecord, gone: datetime) -> ScheduleRecord:
    """A run that its schedule waits for stays until that has been reviewed: it decides."""
    left = (moment for moment in entry.open_runs if moment != gone or moment == entry.awaited_run)
    return entry._replace(open_runs=tuple(left))


def _with_room(entry: ScheduleRecord) -> ScheduleRecord:
    """All of `times` had been handed over: there is one more to come for what was taken back."""
    if entry.state is not ScheduleState.COMPLETED:
        return entry
    return continue_planning(entry) if entry.next_time else entry


def _noted(entry: ScheduleRecord, at: datetime, now: datetime) -> tuple[datetime, ...]:
    coming = {moment for moment in entry.skipped_times if moment > now} | {at}
    if len(coming) > MAX_SKIPS:
        raise Conflict(f"more than {MAX_SKIPS} instants are taken out", field="at")
    return tuple(sorted(coming))


def cancel_run(book: UnitOfWork, asked: CommandContext, command: RunCancel) -> RunResponse:
    key = RunKey.parse(command.run_id)
    entry = find_schedule(book, asked)
    run = book.open_runs.get(key)
    if run is None:
        raise NotFound("there is no such open run", field="run_id")
    if run.state is RunState.RUNNING:
        book.request_stop([run], Reason.CANCELLED)
        return RunResponse(run_id=command.run_id, status="in_flight", state=run.state)
    book.cancel(run, Reason.CANCELLED)
    left = _without(entry, key.scheduled_for)
    if key.scheduled_for > asked.accepted_at:  # nor when a change has its instant planned again
        left = left._replace(skips=_noted(entry, key.scheduled_for, asked.accepted_at))
    book.update(left)
    return RunResponse(run_id=command.run_id, status="cancelled", state=RunState.CANCELLED)


_RESOLVED: Final = {
    Resolution.SUCCEEDED: RunState.SUCCEEDED,
    Resolution.SKIPPED: RunState.SKIPPED,
    Resolution.RETRY: RunState.STAGED,
}


def resolve_run(book: UnitOfWork, asked: CommandContext, command: RunResolve) -> RunResponse:
    """A person says what became of a held run; its schedule goes on if no other is held."""
    key = RunKey.parse(command.run_id)
    entry = find_schedule(book, asked)
    if (row := book.ended_runs.get(key)) is None or row.state is not RunState.UNRESOLVED:
        raise NotFound("there is no such held run", field="run_id")
    state = book.resolved_runs[key] = _RESOLVED[command.as_]
    del book.ended_runs[key]
    others = [
        each
        for each, ended in book.ended_runs.items()
        if each.schedule_id == entry.id and ended.state is RunState.UNRESOLVED
    ]
    changed = entry._replace(changed_at=asked.accepted_at)
    if entry.state is ScheduleState.BLOCKED and not others:
        changed = resume_planning(changed)
    book.update(changed)
    return RunResponse(run_id=command.run_id, status="resolved", state=state)
