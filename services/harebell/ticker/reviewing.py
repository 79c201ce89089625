"""What ended runs mean for their schedule: what it waited for, failures in a row, holds. Pure."""

from datetime import datetime
from typing import Final

from harebell.contract.identity import RunKey
from harebell.contract.scalars import cut
from harebell.contract.when import Every, Recurring
from harebell.kernel.ledger import Reason, RunState, ScheduleState
from harebell.kernel.timetable import TICK, AfterEnd
from harebell.ticker.book import Book, Ended, Entry
from harebell.ticker.core.halting import planned_on

UNRESOLVED: Final = "a run started and was not heard of again"


def review(book: Book, entry: Entry) -> None:
    """From the rows alone, each ended run once: it leaves the open ones here."""
    keys = [RunKey(moment, entry.id) for moment in sorted(entry.open_runs)]
    ended = {key: book.ended[key] for key in keys if key in book.ended}
    over = {key for key, row in ended.items() if row.state is not RunState.HELD}
    leaving = {key for key in over if not _is_yet_to_count(entry, key.scheduled_for)}
    changed = entry._replace(
        failures=_failures(entry.failures, [ended[key] for key in sorted(leaving)]),
        open_runs=tuple(m for m in entry.open_runs if RunKey(m, entry.id) not in leaving),
    )
    if entry.awaiting is not None and (key := RunKey(entry.awaiting, entry.id)) in over:
        changed = _concluded(changed, key.scheduled_for, ended[key])
    if changed.state is ScheduleState.ACTIVE or changed.state is ScheduleState.COMPLETED:
        changed = _stopped(book, changed, is_held=len(over) < len(ended))
    if changed != entry:
        book.write(changed)


def _is_yet_to_count(entry: Entry, run: datetime) -> bool:
    """Planning went back before it for a pause or a hold, and meets it when that is over."""
    is_resting = entry.state in (ScheduleState.PAUSED, ScheduleState.HELD)
    return is_resting and run > entry.planned_to


def _failures(before: int, ended: list[Ended]) -> int:
    """Consecutive dead runs, by the order of their instants; only a success ends the row."""
    failures = before
    for row in ended:
        if row.state is RunState.DEAD:
            failures += 1
        elif row.state is RunState.SUCCEEDED:
            failures = 0
    return failures


def _concluded(entry: Entry, run: datetime, row: Ended) -> Entry:
    """The awaited run has ended: what comes next, or that nothing does."""
    when = entry.version.terms.when
    if isinstance(when, Recurring) and when.until and row.state is RunState.SUCCEEDED:
        return _achieved(entry, run)
    entry = entry._replace(awaiting=None)
    table = entry.version.timetable
    if isinstance(table, AfterEnd) and isinstance(when, Every):
        rest = cut(row.finished_at + when.every) - TICK
        entry = entry._replace(planned_to=max(entry.planned_to, rest))
    return entry if _halted(entry) else planned_on(entry)


def _achieved(entry: Entry, run: datetime) -> Entry:
    """Its goal is reached: what is paused has nothing left to go on with either.

    But for a change that waits, or a run that is held: then the run is awaited until that is over,
    so that the schedule does not go on by the version whose goal is reached.
    """
    paused_for_nothing = entry.state is ScheduleState.PAUSED and entry.pending is None
    if not _halted(entry) or paused_for_nothing:
        over = entry._replace(state=ScheduleState.COMPLETED, paused_until=None)
        return over._replace(next_at=entry.pending_at, awaiting=None)
    if entry.state is ScheduleState.CANCELLED:
        return entry._replace(awaiting=None)
    return entry._replace(open_runs=tuple(sorted({*entry.open_runs, run})))


def _halted(entry: Entry) -> bool:
    return entry.state not in (ScheduleState.ACTIVE, ScheduleState.COMPLETED)


def _stopped(book: Book, entry: Entry, *, is_held: bool) -> Entry:
    """Held by a run of unknown outcome, or paused by failures in a row."""
    limit = entry.version.terms.pause_after_failures
    if is_held:
        state, reason = ScheduleState.HELD, UNRESOLVED
    elif limit is not None and entry.failures >= limit:
        state, reason = ScheduleState.PAUSED, f"{entry.failures} runs failed in a row"
    else:
        return entry
    book.stop(book.claimed(entry), Reason.PAUSED)
    withdrawn = book.withdraw(entry, Reason.PAUSED)
    return withdrawn._replace(state=state, reason=reason, next_at=None)
