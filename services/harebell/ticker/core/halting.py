"""Pausing, resuming, cancelling."""

from harebell.contract.answers import ScheduleAnswer
from harebell.contract.commands import ScheduleCommand, SchedulePause
from harebell.contract.errors import Conflict
from harebell.kernel.ledger import Reason, ScheduleState
from harebell.kernel.occurrences import MISSED_AFTER
from harebell.ticker.book import Book, Entry, OpenRun
from harebell.ticker.core.answering import answer
from harebell.ticker.core.asked import Asked
from harebell.ticker.version import Fate


def pause(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    is_over = entry.state is ScheduleState.COMPLETED and not book.open_of(entry)
    if is_over or entry.state is ScheduleState.CANCELLED:
        raise Conflict(f"is {entry.state}", code="not_active")
    until = asked.command.until if isinstance(asked.command, SchedulePause) else None
    claimed = book.claimed(entry)
    book.stop(claimed, Reason.PAUSED)
    withdrawn = book.withdraw(book.untrigger(entry, Reason.PAUSED), Reason.PAUSED)
    paused = withdrawn._replace(paused_until=until)
    return _halt(book, asked, paused, ScheduleState.PAUSED, claimed)


def cancel(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    """For good: also what waits for a retry, and the change that waits for its time."""
    claimed = book.claimed(entry)
    book.stop(claimed, Reason.CANCELLED)
    kept = book.untrigger(entry, Reason.CANCELLED)
    withdrawn = book.withdraw(kept, Reason.CANCELLED, begun=True)
    if entry.pending is not None:
        book.fates[entry.id, entry.pending.number] = (Fate.SKIPPED, "the schedule was cancelled")
    cancelled = withdrawn._replace(pending=None, paused_until=None, awaiting=None)
    return _halt(book, asked, cancelled, ScheduleState.CANCELLED, claimed)


def _halt(
    book: Book, asked: Asked, entry: Entry, state: ScheduleState, claimed: list[OpenRun]
) -> ScheduleAnswer:
    note = asked.command.note if isinstance(asked.command, ScheduleCommand) else None
    halted = entry._replace(
        state=state,
        next_at=entry.paused_until,
        changed_at=asked.accepted_at,
        reason=note,
    )
    return answer(book.write(halted), state.value, asked.accepted_at, claimed)


def resume(book: Book, asked: Asked, entry: Entry) -> ScheduleAnswer:
    """From where planning stood: the catch-up policy decides about the gap."""
    if entry.standing(asked.accepted_at) is ScheduleState.ACTIVE:
        return answer(entry, "resumed", asked.accepted_at)
    if entry.state not in (ScheduleState.PAUSED, ScheduleState.PARKED):
        raise Conflict(f"is {entry.state}", code="not_paused")
    resumed = going_on(entry._replace(changed_at=asked.accepted_at))
    book.stop(book.claimed(entry), None)
    cursor = max(entry.planned_to, asked.accepted_at - MISSED_AFTER)
    return answer(book.write(resumed), "resumed", cursor)


def going_on(entry: Entry) -> Entry:
    """As it goes on after a pause or a hold; failures are counted afresh.

    What a version before owed and a pause took back is owed again: no timetable brings it.
    """
    past = (run for run in entry.open_runs if run <= entry.planned_to and run != entry.awaiting)
    mine = (run for run in past if entry.version_at(run) is entry.version)
    again = tuple(run for run in mine if not entry.version.owes(run))
    return planned_on(entry)._replace(paused_until=None, failures=0, again=again)


def planned_on(entry: Entry) -> Entry:
    """Active from where planning stands, unless nothing is left to come."""
    awaited = entry.awaiting if entry.awaiting in entry.open_runs else None
    instants = [None if awaited else entry.following, entry.pending_at]
    next_at = min(filter(None, instants), default=None)
    return entry._replace(
        state=ScheduleState.ACTIVE if next_at or awaited else ScheduleState.COMPLETED,
        next_at=next_at,
        awaiting=awaited,
        reason=None,
    )
