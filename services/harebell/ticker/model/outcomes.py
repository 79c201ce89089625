"""What ended runs mean for their schedule: what it waited for, failures in a row, holds. Pure."""

from datetime import datetime
from typing import Final

from harebell.contract.ids import RunKey
from harebell.contract.types import truncate_ms
from harebell.contract.when import Every, Recurring
from harebell.domain.recurrence import RESOLUTION, AfterCompletion
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.model.planning_cursor import continue_planning
from harebell.ticker.model.unit_of_work import Ended, ScheduleRecord, UnitOfWork

UNRESOLVED: Final = "a run started and was not heard of again"


def apply_outcomes(book: UnitOfWork, entry: ScheduleRecord) -> None:
    """From the rows alone, each ended run once: it leaves the open ones here."""
    keys = [RunKey(moment, entry.id) for moment in sorted(entry.open_runs)]
    ended = {key: book.ended_runs[key] for key in keys if key in book.ended_runs}
    over = {key for key, row in ended.items() if row.state is not RunState.UNRESOLVED}
    leaving = {key for key in over if not _is_yet_to_count(entry, key.scheduled_for)}
    changed = entry._replace(
        failures=_failures(entry.consecutive_failures, [ended[key] for key in sorted(leaving)]),
        open_runs=tuple(m for m in entry.open_runs if RunKey(m, entry.id) not in leaving),
    )
    if entry.awaited_run is not None and (key := RunKey(entry.awaited_run, entry.id)) in over:
        changed = _concluded(changed, key.scheduled_for, ended[key])
    if changed.state is ScheduleState.ACTIVE or changed.state is ScheduleState.COMPLETED:
        changed = _stopped(book, changed, is_held=len(over) < len(ended))
    if changed != entry:
        book.update(changed)


def _is_yet_to_count(entry: ScheduleRecord, run: datetime) -> bool:
    """Planning went back before it for a pause or a hold, and meets it when that is over."""
    is_resting = entry.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED)
    return is_resting and run > entry.planned_until


def _failures(before: int, ended: list[Ended]) -> int:
    """Consecutive dead runs, by the order of their instants; only a success ends the row."""
    failures = before
    for row in ended:
        if row.state is RunState.DEAD:
            failures += 1
        elif row.state is RunState.SUCCEEDED:
            failures = 0
    return failures


def _concluded(entry: ScheduleRecord, run: datetime, row: Ended) -> ScheduleRecord:
    """The awaited run has ended: what comes next, or that nothing does."""
    when = entry.version.policy.when
    if isinstance(when, Recurring) and when.until and row.state is RunState.SUCCEEDED:
        return _achieved(entry, run)
    entry = entry._replace(awaited_run=None)
    table = entry.version.recurrence
    if isinstance(table, AfterCompletion) and isinstance(when, Every):
        rest = truncate_ms(row.finished_at + when.every) - RESOLUTION
        entry = entry._replace(planned_until=max(entry.planned_until, rest))
    return entry if _halted(entry) else continue_planning(entry)


def _achieved(entry: ScheduleRecord, run: datetime) -> ScheduleRecord:
    """Its goal is reached: what is paused has nothing left to go on with either.

    But for a change that waits, or a run that is held: then the run is awaited until that is over,
    so that the schedule does not go on by the version whose goal is reached.
    """
    paused_for_nothing = entry.state is ScheduleState.PAUSED and entry.pending is None
    if not _halted(entry) or paused_for_nothing:
        over = entry._replace(state=ScheduleState.COMPLETED, paused_until=None)
        return over._replace(next_at=entry.pending_at, awaited_run=None)
    if entry.state is ScheduleState.CANCELLED:
        return entry._replace(awaited_run=None)
    return entry._replace(open_runs=tuple(sorted({*entry.open_runs, run})))


def _halted(entry: ScheduleRecord) -> bool:
    return entry.state not in (ScheduleState.ACTIVE, ScheduleState.COMPLETED)


def _stopped(book: UnitOfWork, entry: ScheduleRecord, *, is_held: bool) -> ScheduleRecord:
    """Held by a run of unknown outcome, or paused by failures in a row."""
    limit = entry.version.policy.pause_after_failures
    if is_held:
        state, reason = ScheduleState.BLOCKED, UNRESOLVED
    elif limit is not None and entry.consecutive_failures >= limit:
        state, reason = ScheduleState.PAUSED, f"{entry.consecutive_failures} runs failed in a row"
    else:
        return entry
    book.request_stop(book.claimed_runs(entry), Reason.PAUSED)
    withdrawn = book.unstage(entry, Reason.PAUSED)
    return withdrawn._replace(state=state, reason=reason, next_at=None)
