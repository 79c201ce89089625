"""One schedule's whole audit: all rules, in the order in which people want to read them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from harebell.audit.model.coverage import Coverage, check_coverage
from harebell.audit.model.lateness import find_late, find_stuck, find_stuck_schedule
from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Window
from harebell.audit.model.row_checks import find_invalid, find_invalid_schedule
from harebell.audit.model.state_checks import find_inconsistent, find_inconsistent_schedule, find_duplicated


def check_schedule(schedule: Schedule, window: Window) -> Iterator[Finding]:
    """How it stands, whatever its runs."""
    yield from find_invalid_schedule(schedule)
    yield from find_inconsistent_schedule(schedule)
    yield from find_stuck_schedule(schedule, window)


def check_runs(
    schedule: Schedule, runs: Sequence[Run], orphans: Iterable[datetime], window: Window
) -> Coverage:
    """`orphans`: instants that have attempts and no run."""
    covered = check_coverage(schedule, runs, window)
    inside = [run for run in runs if window.since <= run.scheduled_for < window.until]
    found = [*covered.findings, *_orphaned(schedule, orphans)]
    for run in inside:
        found += find_duplicated(schedule, run)
        found += find_late(schedule, run, window)
        found += find_stuck(schedule, run, window)
        found += find_invalid(schedule, run)
        found += find_inconsistent(schedule, run)
    return Coverage(covered.expected, covered.recorded, tuple(found))


def _orphaned(schedule: Schedule, orphans: Iterable[datetime]) -> Iterator[Finding]:
    for at in orphans:
        yield schedule.finding(FindingKind.MISSING, "its attempts are on record, and it is not", at)
