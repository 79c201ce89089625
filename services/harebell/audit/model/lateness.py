"""The lateness of runs: runs that started late, and runs and schedules that are stuck."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Window
from harebell.audit.model.waits import NO_WAITS, Waits
from harebell.contract.ids import RunKey
from harebell.contract.policy import CatchUpMode, Overlap
from harebell.contract.schedule import Definition
from harebell.domain.planner import StartDelays
from harebell.domain.recurrence import Once
from harebell.domain.run_states import Reason, RunState
from harebell.domain.versions import VersionWindow

_BACKFILL: Final = "backfill"


def find_late(
    schedule: Schedule, run: Run, window: Window, *, waits: Waits = NO_WAITS
) -> Iterator[Finding]:
    """Yield a finding if the first attempt started late.

    A run may wait for a breaker, a slot or a rate limit, and a backfill stages past runs.
    """
    version, definition = schedule.window_of(run.version), schedule.definition_of(run.version)
    started_at = _first_start(run)
    if version is None or definition is None or started_at is None or run.origin == _BACKFILL:
        return
    if definition.overlap is not Overlap.ALLOW or definition.rate_limit is not None:
        return
    if definition.concurrency is not None:
        return
    expected = _expected_start(version, run, started_at)
    expected = _after_blackouts(definition, expected, window.late_after)
    if started_at - expected <= window.late_after:
        return
    delay = waits.delay(schedule.downstream_of(run), expected, started_at, tenant=run.tenant)
    if delay > window.late_after:
        text = f"The first attempt started {started_at - expected} late."
        yield schedule.finding(FindingKind.LATE, text, run.scheduled_for)


def find_stuck(
    schedule: Schedule, run: Run, window: Window, *, waits: Waits = NO_WAITS
) -> Iterator[Finding]:
    """Yield a finding if a run is open and no service acted in time.

    A run that waits for a breaker, or for a slot in use, is not stuck.
    A run that waits for a rate limit has the time of its reservation in `next_attempt_at`.
    """
    bound = window.late_before
    if run.state == RunState.RUNNING and run.lease_until is not None and run.lease_until < bound:
        text = f"The lease of {run.lease_holder} expired at {run.lease_until}."
        yield schedule.finding(FindingKind.STUCK, text, run.scheduled_for)
    if run.state not in (RunState.STAGED, RunState.RETRYING):
        return
    if run.expires_at is not None and run.expires_at < bound:
        text = f"The run is {run.state}, but it expired at {run.expires_at}."
        yield schedule.finding(FindingKind.STUCK, text, run.scheduled_for)
    elif run.reason == Reason.WAITING_FOR_OVERLAP:
        yield from _find_unneeded_wait(schedule, run, window, waits=waits)
    elif run.reason == Reason.WAITING_FOR_LABEL:
        yield from _find_unneeded_label_wait(schedule, run, window, waits=waits)
    else:
        yield from _find_overdue(schedule, run, window, waits=waits)


def _find_overdue(
    schedule: Schedule, run: Run, window: Window, *, waits: Waits
) -> Iterator[Finding]:
    """Yield a finding if nothing delays the run any longer."""
    definition = schedule.definition_of(run.version)
    expected = _after_blackouts(definition, run.expected_at, window.late_after)
    if expected < window.late_before:
        delay = waits.delay(schedule.downstream_of(run), expected, window.now, tenant=run.tenant)
        if delay > window.late_after:
            text = f"The run is {run.state} and has been due since {expected}."
            yield schedule.finding(FindingKind.STUCK, text, run.scheduled_for)


def _find_unneeded_wait(
    schedule: Schedule, run: Run, window: Window, *, waits: Waits
) -> Iterator[Finding]:
    """Yield a finding if the run waits for an overlap slot that no run has.

    A woken run may wait for a breaker.
    """
    overlap = waits.overlap_of(schedule.id)
    if overlap.is_occupied:
        return
    free_since = max(run.next_attempt_at or run.due_at, overlap.free_since or run.due_at)
    delay = waits.delay(schedule.downstream_of(run), free_since, window.now, tenant=run.tenant)
    if delay > window.late_after:
        text = f"The run waits for an overlap slot, which has been free since {free_since}."
        yield schedule.finding(FindingKind.STUCK, text, run.scheduled_for)


def _find_unneeded_label_wait(
    schedule: Schedule, run: Run, window: Window, *, waits: Waits
) -> Iterator[Finding]:
    """Yield a finding if the run is at the front of its line and its label has a free slot."""
    wait = waits.labels.get(RunKey(run.scheduled_for, schedule.id))
    if wait is None or wait.is_occupied:
        return
    if window.now - wait.free_since > window.late_after:
        text = f"The run waits for its label, which has had a free slot since {wait.free_since}."
        yield schedule.finding(FindingKind.STUCK, text, run.scheduled_for)


def find_stuck_schedule(schedule: Schedule, window: Window) -> Iterator[Finding]:
    """Yield a finding if no ticker has read the schedule in time.

    A resumed schedule continues at a past time, so its delay begins with the command.
    """
    if schedule.next_at is None:
        return
    due_since = max(schedule.next_at, schedule.changed_at)
    if due_since < window.late_before:
        text = f"The schedule has been due since {due_since}, and no ticker has read it."
        yield schedule.finding(FindingKind.STUCK, text)


def _first_start(run: Run) -> datetime | None:
    if run.attempts:
        return run.attempts[0].started_at
    return run.started_at if run.state == RunState.RUNNING else None


def _expected_start(version: VersionWindow, run: Run, started_at: datetime) -> datetime:
    """Return the time at which the first attempt should start.

    After a pause or an outage, the catch-up policy stages missed runs, which start when they are
    staged. If the first attempt started before the staging, a retry was staged, so the delay is
    negative.
    """
    mode = version.policy.catch_up.mode
    if mode is CatchUpMode.NONE and not isinstance(version.recurrence, Once):
        return run.due_at
    return max(run.due_at, run.staged_at or started_at)


def _after_blackouts(
    definition: Definition | None, time: datetime, late_after: timedelta
) -> datetime:
    """Return an expected start, or the end of the blackouts that hold it back.

    The due time of a manual run, of a retry or of a replay may be within a blackout. A run that is
    not late yet when a blackout begins may also wait for its end.
    """
    if definition is None:
        return time
    delays, last = StartDelays.of(definition), time + late_after
    end = delays.hold_back(last)
    return delays.hold_back(time) if end == last else end
