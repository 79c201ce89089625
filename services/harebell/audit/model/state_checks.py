"""States rebuilt from attempts, versions and reasons, to be compared with what rows say. Pure."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from typing import Final

from harebell.audit.model.records import Attempt, Finding, FindingKind, Run, Schedule, Span
from harebell.contract.when import Recurring
from harebell.domain.planner import remaining_runs
from harebell.domain.run_states import SUCCEEDED, Reason, RunState, ScheduleState

AHEAD: Final = timedelta(minutes=10)  # of `next_at` at most, schedules are looked at

_S = RunState
STATES_WITHOUT_ATTEMPT: Final[dict[str | None, frozenset[RunState]]] = {  # by the reason
    None: frozenset({_S.STAGED}),
    Reason.WAITING_FOR_OVERLAP: frozenset({_S.STAGED}),
    Reason.RATE_LIMITED: frozenset({_S.STAGED}),
    Reason.SUPERSEDED: frozenset({_S.CANCELLED}),
    Reason.REPLACED: frozenset({_S.CANCELLED}),
    Reason.PAUSED: frozenset({_S.CANCELLED, _S.SKIPPED}),
    Reason.CANCELLED: frozenset({_S.CANCELLED, _S.SKIPPED}),
    Reason.EXPIRED: frozenset({_S.EXPIRED, _S.SKIPPED}),
    Reason.MISSED: frozenset({_S.SKIPPED}),
    Reason.OVERLAP: frozenset({_S.SKIPPED}),
    Reason.MANUAL: frozenset({_S.SKIPPED}),
}
STATES_WITHOUT_SUCCESS: Final[dict[str | None, frozenset[RunState]]] = {  # any other reason: dead
    None: frozenset({_S.RETRYING}),
    Reason.WAITING_FOR_OVERLAP: frozenset({_S.RETRYING}),
    Reason.RATE_LIMITED: frozenset({_S.RETRYING}),
    Reason.SUPERSEDED: frozenset({_S.CANCELLED}),
    Reason.REPLACED: frozenset({_S.CANCELLED}),
    Reason.PAUSED: frozenset({_S.CANCELLED}),
    Reason.CANCELLED: frozenset({_S.CANCELLED}),
    Reason.EXPIRED: frozenset({_S.EXPIRED}),
    Reason.UNKNOWN_OUTCOME: frozenset({_S.UNRESOLVED, _S.SKIPPED}),
    Reason.MANUAL: frozenset({_S.SUCCEEDED, _S.SKIPPED}),
}


def possible_states(run: Run) -> frozenset[RunState]:
    """The states that its attempts and its reason lead to; none: they contradict each other."""
    attempts = run.current_attempts
    if run.attempt == len(attempts) + 1:
        return frozenset({_S.RUNNING})
    if run.attempt != len(attempts):
        return frozenset()
    if not attempts:
        return STATES_WITHOUT_ATTEMPT.get(run.reason, frozenset())
    if attempts[-1].outcome == SUCCEEDED:
        return frozenset({_S.SUCCEEDED})
    return STATES_WITHOUT_SUCCESS.get(run.reason, frozenset({_S.DEAD}))


def find_inconsistent(schedule: Schedule, run: Run) -> Iterator[Finding]:
    allowed = possible_states(run)
    if run.state not in allowed:
        led_to = " or ".join(sorted(allowed)) or "no state"
        words = f"it is {run.state}; attempts and reason lead to {led_to}"
        yield schedule.finding(FindingKind.INCONSISTENT, words, run.scheduled_for)
    last = run.current_attempts[-1].outcome if run.current_attempts else None
    if run.outcome not in (run.state, last):
        words = f"its outcome is {run.outcome}, that of its last attempt {last}"
        yield schedule.finding(FindingKind.INCONSISTENT, words, run.scheduled_for)
    if not _are_counted(run.attempts):
        words = "its attempts are not numbered from 1 on"
        yield schedule.finding(FindingKind.INCONSISTENT, words, run.scheduled_for)
    if run.seq < (least := _least_seq(run)):
        words = f"seq is {run.seq}; its attempts alone have taken it to {least}"
        yield schedule.finding(FindingKind.INCONSISTENT, words, run.scheduled_for)


def _are_counted(attempts: tuple[Attempt, ...]) -> bool:
    numbers = [
        [each.number for each in replay_number]
        for _, replay_number in groupby(attempts, key=lambda attempt: attempt.replay_number)
    ]
    return all(each == list(range(1, len(each) + 1)) for each in numbers)


def _least_seq(run: Run) -> int:
    """Every attempt is claimed and ended; a new series is begun; each adds one."""
    return run.replay_number + 1 + 2 * len(run.attempts) + (run.state == RunState.RUNNING)


def find_duplicated(schedule: Schedule, run: Run) -> Iterator[Finding]:
    outcomes = [attempt.outcome for attempt in run.attempts]
    if (successes := outcomes.count(SUCCEEDED)) > 1:
        words = f"it succeeded {successes} times"
        yield schedule.finding(FindingKind.DUPLICATED, words, run.scheduled_for)
    elif successes and outcomes[-1] != SUCCEEDED:
        words = f"it was tried again after it had succeeded: {', '.join(outcomes)}"
        yield schedule.finding(FindingKind.DUPLICATED, words, run.scheduled_for)


def find_inconsistent_schedule(schedule: Schedule) -> Iterator[Finding]:
    newest = max((span.number for span in schedule.windows if span.commenced), default=None)
    in_force = schedule.window_of(schedule.version)
    if not schedule.version == schedule.shown_version == newest or in_force is None:
        words = f"version {newest} is in force, {schedule.version} is planned"
        yield schedule.finding(FindingKind.INCONSISTENT, f"{words}, {schedule.shown_version} is shown")
        return
    left = remaining_runs(in_force.definition, schedule.dispatched)
    due = None if left == 0 else in_force.table.next_after(schedule.planned_until)
    if due is None or (schedule.pending_at is not None and schedule.pending_at <= due):
        return
    waits = schedule.state is ScheduleState.ACTIVE and schedule.awaited_run is None
    if waits and schedule.next_at is not None and schedule.next_at > due + AHEAD:
        words = f"it owes a run at {due}, and is not looked at before {schedule.next_at}"
        yield schedule.finding(FindingKind.INCONSISTENT, words)
    if schedule.state is ScheduleState.COMPLETED and not _may_be_over(in_force):
        yield schedule.finding(
            FindingKind.INCONSISTENT, f"it is completed, and owes a run at {due}"
        )


def _may_be_over(span: Span) -> bool:
    """Before its last instant: so many times, or until a success."""
    when = span.definition.when
    return isinstance(when, Recurring) and (when.times is not None or when.until is not None)
