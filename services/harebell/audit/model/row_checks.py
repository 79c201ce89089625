"""The checks of single rows: columns that contradict each other in any history of a run."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from harebell.audit.model.records import Finding, FindingKind, Run, Schedule
from harebell.domain.run_states import ENDED, RunState, ScheduleState

MAX_CLOCK_DIFFERENCE: Final = timedelta(seconds=1)  # between the clocks of two processes

_STATES: Final = frozenset(RunState)
_ATTEMPTED_STATES: Final = frozenset(
    {RunState.RUNNING, RunState.RETRYING, RunState.SUCCEEDED, RunState.DEAD, RunState.UNRESOLVED}
)
_WAITING_STATES: Final = frozenset({RunState.STAGED, RunState.RETRYING})


def find_invalid(schedule: Schedule, run: Run) -> Iterator[Finding]:
    """Yield a finding for each contradiction in the row of a run."""
    texts = [text for text, is_broken in _CONTRADICTIONS if is_broken(run)]
    definition = schedule.definition_of(run.version)
    if definition is None:
        texts.append(f"Version {run.version} of the run has never been in force.")
    elif (counted := run.attempt - (run.failed_probes or 0)) > definition.retry.max_attempts:
        limit = definition.retry.max_attempts
        texts.append(f"The run has attempt {counted}, but its policy allows {limit} attempts.")
    if run.tenant != schedule.tenant:
        texts.append(f"The tenant of the run is {run.tenant}.")
    return (schedule.finding(FindingKind.INVALID, text, run.scheduled_for) for text in texts)


def find_invalid_schedule(schedule: Schedule) -> Iterator[Finding]:
    """Yield a finding for each impossible combination of the columns of a schedule."""
    is_ignored = schedule.next_at is None and schedule.awaited_run is None
    if schedule.state is ScheduleState.ACTIVE and is_ignored:
        text = "The schedule is active, but the ticker will never read the schedule."
        yield schedule.finding(FindingKind.INVALID, text)
    if not 0 <= schedule.failures <= schedule.executions:
        text = f"The schedule has {schedule.failures} failures in {schedule.executions} executions."
        yield schedule.finding(FindingKind.INVALID, text)
    if schedule.executions > 0 and schedule.last_run is None:
        text = f"The schedule has {schedule.executions} executions, but no last run."
        yield schedule.finding(FindingKind.INVALID, text)


def _is_unknown_state(run: Run) -> bool:
    return run.state not in _STATES


def _has_doubtful_end(run: Run) -> bool:
    return (run.finished_at is not None) is not (run.state in ENDED)


def _has_no_outcome(run: Run) -> bool:
    return run.state in ENDED and run.outcome is None


def _has_invalid_lease(run: Run) -> bool:
    is_running = run.state == RunState.RUNNING
    has_lease = run.lease_until is not None
    return has_lease is not is_running or (is_running and run.lease_holder is None)


def _has_no_attempt(run: Run) -> bool:
    return run.state in _ATTEMPTED_STATES and run.attempt < 1


def _is_staged_with_attempt(run: Run) -> bool:
    return run.state == RunState.STAGED and run.attempt > 0


def _has_no_retry_time(run: Run) -> bool:
    return run.state == RunState.RETRYING and run.next_attempt_at is None


def _has_useless_retry_time(run: Run) -> bool:
    return run.state not in _WAITING_STATES and run.next_attempt_at is not None


def _ended_before_start(run: Run) -> bool:
    started, ended = run.started_at, run.finished_at
    return started is not None and ended is not None and started > ended + MAX_CLOCK_DIFFERENCE


def _started_before_due_time(run: Run) -> bool:
    return run.started_at is not None and run.started_at < run.due_at - MAX_CLOCK_DIFFERENCE


def _is_due_too_early(run: Run) -> bool:
    return run.due_at < run.scheduled_for


def _has_invalid_counter(run: Run) -> bool:
    return run.seq < 1 or run.replay_number < 0 or run.attempt < 0


def _has_invalid_range(run: Run) -> bool:
    if run.range_until is None or run.range_count is None:
        return (run.range_until is None) is not (run.range_count is None)
    is_empty = run.range_until < run.scheduled_for or run.range_count < 1
    return run.state != RunState.SKIPPED or is_empty


_CONTRADICTIONS: Final[tuple[tuple[str, Callable[[Run], bool]], ...]] = (
    ("The state is not a run state.", _is_unknown_state),
    ("The state and `finished_at` disagree whether the run has ended.", _has_doubtful_end),
    ("The run has ended without an outcome.", _has_no_outcome),
    ("Only a running run has a lease, which has a holder.", _has_invalid_lease),
    ("The state requires an attempt, and the run has none.", _has_no_attempt),
    ("The run is staged and has an attempt.", _is_staged_with_attempt),
    ("The run is retrying and has no time for the next attempt.", _has_no_retry_time),
    ("The run has a time for the next attempt and does not wait.", _has_useless_retry_time),
    ("The run ended before it started.", _ended_before_start),
    ("The run started before it was due.", _started_before_due_time),
    ("The run was due before its scheduled time.", _is_due_too_early),
    (
        "A counter is below its first value: `seq` 1, `replay_number` 0, `attempt` 0.",
        _has_invalid_counter,
    ),
    ("Only a skipped run has a range, with an end and a count.", _has_invalid_range),
)
