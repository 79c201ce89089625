"""What began later than it may, and what ought to have gone on by now. Pure."""

from collections.abc import Iterator
from datetime import datetime

from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Span, Window
from harebell.contract.policy import CatchUpMode, Overlap
from harebell.domain.recurrence import Once
from harebell.domain.run_states import Reason, RunState

BACKFILL = "backfill"


def find_late(schedule: Schedule, run: Run, window: Window) -> Iterator[Finding]:
    """By its first attempt. What waits for a turn or a limit may, and what is backfilled is old."""
    span, began = schedule.window_of(run.version), _began(run)
    if span is None or began is None or run.origin == BACKFILL:
        return
    if span.definition.overlap is not Overlap.ALLOW or span.definition.rate_limit is not None:
        return
    delay = began - _expected(span, run, began)
    if delay > window.late_after:
        yield schedule.finding(FindingKind.LATE, f"it began {delay} late", run.scheduled_for)


def _began(run: Run) -> datetime | None:
    if run.attempts:
        return run.attempts[0].started_at
    return run.started_at if run.state == RunState.RUNNING else None


def _expected(span: Span, run: Run, began: datetime) -> datetime:
    """What its policy makes up for may begin when it is staged, after a pause or an outage.

    A retry is staged later than the first attempt began, and says nothing of that one.
    """
    mode = span.definition.catch_up.mode
    if mode is CatchUpMode.NONE and not isinstance(span.table, Once):
        return run.due_at
    return max(run.due_at, run.staged_at or began)


def find_stuck(schedule: Schedule, run: Run, window: Window) -> Iterator[Finding]:
    """By the bound of lateness; what waits for its turn is in nobody's way."""
    over = window.late_before
    if run.state == RunState.RUNNING and run.lease_until is not None and run.lease_until < over:
        words = f"the lease of {run.lease_holder} ran out at {run.lease_until}"
        yield schedule.finding(FindingKind.STUCK, words, run.scheduled_for)
    if run.state not in (RunState.STAGED, RunState.RETRYING):
        return
    expected = run.next_attempt_at or run.due_at
    if run.expires_at is not None and run.expires_at < over:
        yield schedule.finding(
            FindingKind.STUCK, f"it is open and expired at {run.expires_at}", run.scheduled_for
        )
    elif expected < over and run.reason != Reason.WAITING_FOR_OVERLAP:
        yield schedule.finding(
            FindingKind.STUCK, f"it is {run.state} and due since {expected}", run.scheduled_for
        )


def find_stuck_schedule(schedule: Schedule, window: Window) -> Iterator[Finding]:
    if schedule.next_at is not None and schedule.next_at < window.late_before:
        words = f"it was to be looked at by {schedule.next_at}, and no ticker has"
        yield schedule.finding(FindingKind.STUCK, words)
