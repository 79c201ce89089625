"""Every owed instant has its row or lies in a range, and every row has an instant. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Final

from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Window
from harebell.domain.run_states import Reason, RunState

# Withdrawn with the cursor set back before it: once that has passed it again, it was owed again.
# `cancelled` is not among them: a person may have cancelled the one run.
_OWED_AGAIN: Final = frozenset({Reason.SUPERSEDED, Reason.PAUSED})
# A skipped run with such a reason was asked for by a person, and its schedule stopped just then.
_UNTRIGGERED: Final = frozenset({Reason.PAUSED, Reason.CANCELLED})


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many instants of the window were owed, how many of them are on record."""

    expected: int
    recorded: int
    findings: tuple[Finding, ...]


class _Ranges:
    """Rows that stand for several instants: whether one of them lies over an instant."""

    def __init__(self, runs: Iterable[Run]) -> None:
        ranges = sorted((run.scheduled_for, run.range_until) for run in runs if run.range_until is not None)
        self._first = [first for first, _ in ranges]
        self._last = list(accumulate((last for _, last in ranges), max))

    def cover(self, instant: datetime) -> bool:
        place = bisect_right(self._first, instant)
        return place > 0 and instant <= self._last[place - 1]


def check_coverage(schedule: Schedule, runs: Sequence[Run], window: Window) -> Coverage:
    """`runs`: of the window, and ranges from before it that reach into it."""
    by_instant = {run.scheduled_for: run for run in runs}
    ranges = _Ranges(runs)
    decided = {instant for span in schedule.windows for instant in span.decided(window)}
    lost = [
        schedule.finding(FindingKind.MISSING, why, instant)
        for instant in sorted(decided)
        if not ranges.cover(instant) and (why := _missing(schedule, by_instant.get(instant)))
    ]
    strays = [run for run in runs if run.scheduled_for not in decided]
    return Coverage(len(decided), len(decided) - len(lost), (*lost, *_invented(schedule, strays)))


def _missing(schedule: Schedule, run: Run | None) -> str | None:
    """What is withdrawn is owed again only if the version in force then has its instant."""
    if run is None:
        return "it was owed, and nothing is on record of it"
    if run.state != RunState.CANCELLED or run.attempt > 0 or run.reason not in _OWED_AGAIN:
        return None
    span = schedule.version_at(run.finished_at or run.scheduled_for)
    if span is None or not span.has(run.scheduled_for):
        return None
    return f"it was withdrawn ({run.reason}), is owed again, and was not staged again"


def _invented(schedule: Schedule, runs: Iterable[Run]) -> Iterator[Finding]:
    """What was handed over stays what it is when a new version comes: any version will do."""
    for run in runs:
        was_asked_for = run.origin is not None or (
            run.state == RunState.SKIPPED and run.reason in _UNTRIGGERED
        )
        if not was_asked_for and not any(span.owes(run.scheduled_for) for span in schedule.windows):
            words = "a run of the timetable, at an instant that no version of it has"
            yield schedule.finding(FindingKind.UNEXPECTED, words, run.scheduled_for)
