"""The coverage of required times: each has its row or is in a range, and each row has a time."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Final

from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Window
from harebell.domain.run_states import Reason, RunState

# The ticker unstages these runs and moves the planning cursor back. It stages a run again when
# the cursor passes the run. A person may cancel one run, so `cancelled` is not in the set.
_RESTAGED_REASONS: Final = frozenset({Reason.SUPERSEDED, Reason.PAUSED})
# The ticker skips a manual run for these reasons if its schedule stopped in the same batch.
_MANUAL_SKIP_REASONS: Final = frozenset({Reason.PAUSED, Reason.CANCELLED})


@dataclass(frozen=True, slots=True)
class Coverage:
    """The required times of a window, the recorded ones among them, and the findings."""

    expected: int
    recorded: int
    findings: tuple[Finding, ...]


class _Ranges:
    """The rows that record several skipped times."""

    def __init__(self, runs: Iterable[Run]) -> None:
        ranges = sorted(
            (run.scheduled_for, run.range_until) for run in runs if run.range_until is not None
        )
        self._first = [first for first, _ in ranges]
        self._last = list(accumulate((last for _, last in ranges), max))

    def cover(self, time: datetime) -> bool:
        index = bisect_right(self._first, time)
        return index > 0 and time <= self._last[index - 1]


def check_coverage(schedule: Schedule, runs: Sequence[Run], window: Window) -> Coverage:
    """Return the coverage of a window.

    `runs` are the rows of the window, and the ranges before the window that reach into it.
    """
    runs_by_time = {run.scheduled_for: run for run in runs}
    ranges = _Ranges(runs)
    required = {
        time for each in schedule.windows for time in each.decided_times(window.since, window.until)
    }
    missing = [
        schedule.finding(FindingKind.MISSING, text, time)
        for time in sorted(required)
        if not ranges.cover(time) and (text := _missing(schedule, runs_by_time.get(time)))
    ]
    others = [run for run in runs if run.scheduled_for not in required]
    findings = (*missing, *_unexpected(schedule, others))
    return Coverage(len(required), len(required) - len(missing), findings)


def _missing(schedule: Schedule, run: Run | None) -> str | None:
    """Return why the run of a required time is missing, or None.

    An unstaged run is required again if the version in force at that time contains its time.
    """
    if run is None:
        return "The run was required, and no row or range records it."
    if run.state != RunState.CANCELLED or run.attempt > 0 or run.reason not in _RESTAGED_REASONS:
        return None
    version = schedule.version_at(run.finished_at or run.scheduled_for)
    if version is None or not version.recurs_at(run.scheduled_for):
        return None
    return f"The run was unstaged ({run.reason}) and is required again, but was not staged again."


def _unexpected(schedule: Schedule, runs: Iterable[Run]) -> Iterator[Finding]:
    """Yield the runs of the recurrence at times that no version contains.

    A staged run keeps its time when a new version comes into force, so any version may contain it.
    """
    for run in runs:
        is_manual = run.origin is not None or (
            run.state == RunState.SKIPPED and run.reason in _MANUAL_SKIP_REASONS
        )
        if not is_manual and not any(each.includes(run.scheduled_for) for each in schedule.windows):
            text = "The run has no origin, and no version of the schedule contains its time."
            yield schedule.finding(FindingKind.UNEXPECTED, text, run.scheduled_for)
