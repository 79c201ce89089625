"""The checks of states: states that attempts, versions and reasons imply, against the rows."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from typing import Final

from harebell.audit.model.records import (
    Attempt,
    Finding,
    FindingKind,
    Run,
    Schedule,
    order_of_force,
)
from harebell.contract.when import Recurring
from harebell.domain.planner import remaining_runs
from harebell.domain.run_states import SUCCEEDED, Reason, RunState, ScheduleState
from harebell.domain.versions import VersionWindow

MAX_NEXT_AT_DELAY: Final = timedelta(minutes=10)  # of `next_at` after the next scheduled time

_S = RunState
STATES_WITHOUT_ATTEMPT: Final[dict[str | None, frozenset[RunState]]] = {  # by reason
    None: frozenset({_S.STAGED}),
    Reason.WAITING_FOR_OVERLAP: frozenset({_S.STAGED}),
    Reason.WAITING_FOR_LABEL: frozenset({_S.STAGED}),
    Reason.RATE_LIMITED: frozenset({_S.STAGED}),
    Reason.BLACKOUT: frozenset({_S.STAGED}),
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
    Reason.WAITING_FOR_LABEL: frozenset({_S.RETRYING}),
    Reason.RATE_LIMITED: frozenset({_S.RETRYING}),
    Reason.BLACKOUT: frozenset({_S.RETRYING}),
    Reason.SUPERSEDED: frozenset({_S.CANCELLED}),
    Reason.REPLACED: frozenset({_S.CANCELLED}),
    Reason.PAUSED: frozenset({_S.CANCELLED}),
    Reason.CANCELLED: frozenset({_S.CANCELLED}),
    Reason.EXPIRED: frozenset({_S.EXPIRED}),
    Reason.UNKNOWN_OUTCOME: frozenset({_S.UNRESOLVED, _S.SKIPPED}),
    Reason.MANUAL: frozenset({_S.SUCCEEDED, _S.SKIPPED}),
}


def possible_states(run: Run) -> frozenset[RunState]:
    """Return the states that follow from the attempts and the reason.

    Return no state if the attempts contradict the number of attempts.
    """
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
    """Yield a finding for each column of a run that does not follow from its attempts."""
    texts = []
    possible = possible_states(run)
    if run.state not in possible:
        states = " or ".join(sorted(possible)) or "no state"
        texts.append(f"The run is {run.state}, but its attempts and its reason imply {states}.")
    last = run.current_attempts[-1].outcome if run.current_attempts else None
    if run.outcome not in (run.state, last):
        texts.append(f"The outcome of the run is {run.outcome}, and of its last attempt {last}.")
    if not _are_numbered(run.attempts):
        texts.append("The attempts of a replay number are not numbered from 1.")
    if run.seq < (minimum := _min_seq(run)):
        texts.append(f"The value of seq is {run.seq}, but the attempts imply at least {minimum}.")
    return (schedule.finding(FindingKind.INCONSISTENT, text, run.scheduled_for) for text in texts)


def find_duplicated(schedule: Schedule, run: Run) -> Iterator[Finding]:
    """Yield a finding if a run succeeded twice, or has an attempt after a success."""
    outcomes = [attempt.outcome for attempt in run.attempts]
    if (successes := outcomes.count(SUCCEEDED)) > 1:
        text = f"The run succeeded {successes} times."
        yield schedule.finding(FindingKind.DUPLICATED, text, run.scheduled_for)
    elif successes and outcomes[-1] != SUCCEEDED:
        text = f"The run has an attempt after a success: {', '.join(outcomes)}."
        yield schedule.finding(FindingKind.DUPLICATED, text, run.scheduled_for)


def find_inconsistent_schedule(schedule: Schedule) -> Iterator[Finding]:
    """Yield a finding if the planned version is wrong, or if planning will miss a time."""
    active = (window for window in schedule.windows if window.is_active)
    last = max(active, key=order_of_force, default=None)
    newest = None if last is None else last.number
    version = schedule.window_of(schedule.version)
    if not schedule.version == schedule.shown_version == newest or version is None:
        planned, shown = schedule.version, schedule.shown_version
        text = (
            f"Version {newest} is in force, but the ticker plans {planned} and users see {shown}."
        )
        yield schedule.finding(FindingKind.INCONSISTENT, text)
        return
    remaining = remaining_runs(version.policy, schedule.dispatched)
    due = None if remaining == 0 else version.recurrence.next_after(schedule.planned_until)
    if due is None or (schedule.pending_at is not None and schedule.pending_at <= due):
        return
    is_waiting = schedule.state is ScheduleState.ACTIVE and schedule.awaited_run is None
    next_at = schedule.next_at
    if is_waiting and next_at is not None and next_at > due + MAX_NEXT_AT_DELAY:
        text = f"A run is required at {due}, but the ticker reads the schedule at {next_at}."
        yield schedule.finding(FindingKind.INCONSISTENT, text)
    if schedule.state is ScheduleState.COMPLETED and not _may_end_early(version):
        text = f"The schedule is completed, but a run is required at {due}."
        yield schedule.finding(FindingKind.INCONSISTENT, text)


def _are_numbered(attempts: tuple[Attempt, ...]) -> bool:
    groups = [
        [attempt.number for attempt in group]
        for _, group in groupby(attempts, key=lambda attempt: attempt.replay_number)
    ]
    return all(numbers == list(range(1, len(numbers) + 1)) for numbers in groups)


def _min_seq(run: Run) -> int:
    """Return the lowest `seq` of a run: the claim and the end of each attempt add 1 each.

    Each replay also adds 1.
    """
    return run.replay_number + 1 + 2 * len(run.attempts) + (run.state == RunState.RUNNING)


def _may_end_early(version: VersionWindow) -> bool:
    """Return whether `times` or `until` may end the schedule before its recurrence ends."""
    when = version.policy.when
    return isinstance(when, Recurring) and (when.times is not None or when.until is not None)
