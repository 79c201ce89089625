"""What no row may say, whatever has happened: columns held against the model of states. Pure."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from harebell.audit.model.records import Finding, FindingKind, Run, Schedule
from harebell.domain.run_states import ENDED, RunState, ScheduleState

CLOCKS: Final = timedelta(seconds=1)  # that those of two processes may be apart

_STATES: Final = frozenset(RunState)
_BEGUN: Final = frozenset(
    {RunState.RUNNING, RunState.RETRYING, RunState.SUCCEEDED, RunState.DEAD, RunState.UNRESOLVED}
)
_RESTING: Final = frozenset({RunState.STAGED, RunState.RETRYING})


def _has_half_a_range(run: Run) -> bool:
    if run.range_until is None or run.range_count is None:
        return (run.range_until is None) is not (run.range_count is None)
    return run.state != RunState.SKIPPED or run.range_until < run.scheduled_for or run.range_count < 1


def _ended_before_it_began(run: Run) -> bool:
    begun, ended = run.started_at, run.finished_at
    return begun is not None and ended is not None and begun > ended + CLOCKS


def _is_leased_amiss(run: Run) -> bool:
    is_running = run.state == RunState.RUNNING
    return (run.lease_until is not None) is not is_running or (
        is_running and run.lease_holder is None
    )


_IMPOSSIBLE: Final[tuple[tuple[str, Callable[[Run], bool]], ...]] = (
    ("its state is none of the model's", lambda run: run.state not in _STATES),
    ("its state and finished_at differ on whether it is over",
     lambda run: (run.finished_at is not None) is not (run.state in ENDED)),
    ("it is over, without an outcome", lambda run: run.state in ENDED and run.outcome is None),
    ("only what runs has a lease, and a holder with it", _is_leased_amiss),
    ("it has begun, without an attempt", lambda run: run.state in _BEGUN and run.attempt < 1),
    ("it is staged, with an attempt", lambda run: run.state == RunState.STAGED and run.attempt > 0),
    ("it waits to be retried, and not for any time",
     lambda run: run.state == RunState.RETRYING and run.next_attempt_at is None),
    ("it has a next attempt, and does not wait for one",
     lambda run: run.state not in _RESTING and run.next_attempt_at is not None),
    ("it ended before it began", _ended_before_it_began),
    ("it began before it was due",
     lambda run: run.started_at is not None and run.started_at < run.due_at - CLOCKS),
    ("it was due before its instant", lambda run: run.due_at < run.scheduled_for),
    ("seq, replay_number and attempt count up from 1, 0 and 0",
     lambda run: run.seq < 1 or run.replay_number < 0 or run.attempt < 0),
    ("only what was skipped stands for a range, with its end and its count", _has_half_a_range),
)  # fmt: skip


def find_invalid(schedule: Schedule, run: Run) -> Iterator[Finding]:
    words = [words for words, is_so in _IMPOSSIBLE if is_so(run)]
    span = schedule.window_of(run.version)
    if span is None:
        words.append(f"its version {run.version} has never been in force")
    elif run.attempt > span.definition.retry.max_attempts:
        words.append(f"attempt {run.attempt} of {span.definition.retry.max_attempts}")
    if run.tenant != schedule.tenant:
        words.append(f"its tenant is {run.tenant}")
    return (schedule.finding(FindingKind.INVALID, each, run.scheduled_for) for each in words)


def find_invalid_schedule(schedule: Schedule) -> Iterator[Finding]:
    is_asleep = schedule.next_at is None and schedule.awaited_run is None
    if schedule.state is ScheduleState.ACTIVE and is_asleep:
        yield schedule.finding(FindingKind.INVALID, "it is active, and nobody will look at it")
