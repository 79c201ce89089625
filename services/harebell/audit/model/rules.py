"""The rules for one schedule, in the order in which a report lists the findings."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from harebell.audit.model.coverage import Coverage, check_coverage
from harebell.audit.model.lateness import find_late, find_stuck, find_stuck_schedule
from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Window
from harebell.audit.model.row_checks import find_invalid, find_invalid_schedule
from harebell.audit.model.state_checks import (
    find_duplicated,
    find_inconsistent,
    find_inconsistent_schedule,
)
from harebell.audit.model.waits import NO_WAITS, Waits


def check_schedule(schedule: Schedule, window: Window) -> Iterator[Finding]:
    """Yield the findings about a schedule apart from its runs."""
    yield from find_invalid_schedule(schedule)
    yield from find_inconsistent_schedule(schedule)
    yield from find_stuck_schedule(schedule, window)


def check_runs(
    schedule: Schedule,
    runs: Sequence[Run],
    orphans: Iterable[datetime],
    *,
    window: Window,
    waits: Waits = NO_WAITS,
) -> Coverage:
    """Return the coverage of a window with the findings about its runs.

    `orphans` are the scheduled times that have attempts and no run.
    """
    coverage = check_coverage(schedule, runs, window)
    findings = [*coverage.findings, *_orphans(schedule, orphans)]
    for run in runs:
        if window.since <= run.scheduled_for < window.until:
            findings += find_duplicated(schedule, run)
            findings += find_late(schedule, run, window, waits=waits)
            findings += find_stuck(schedule, run, window, waits=waits)
            findings += find_invalid(schedule, run)
            findings += find_inconsistent(schedule, run)
    return Coverage(coverage.expected, coverage.recorded, tuple(findings))


def _orphans(schedule: Schedule, orphans: Iterable[datetime]) -> Iterator[Finding]:
    for time in orphans:
        text = "The ledger contains attempts of the run, but not the run."
        yield schedule.finding(FindingKind.MISSING, text, time)
