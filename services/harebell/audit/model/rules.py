"""One schedule's whole audit: all rules, in the order in which people want to read them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from harebell.audit.model.coverage import Coverage, coverage
from harebell.audit.model.lateness import find_late, find_stuck, stuck_schedule
from harebell.audit.model.records import Finding, FindingKind, Run, Schedule, Window
from harebell.audit.model.row_checks import impossible, impossible_schedule
from harebell.audit.model.state_checks import disagreeing, disagreeing_schedule, doubled


def check_schedule(schedule: Schedule, window: Window) -> Iterator[Finding]:
    """How it stands, whatever its runs."""
    yield from impossible_schedule(schedule)
    yield from disagreeing_schedule(schedule)
    yield from stuck_schedule(schedule, window)


def check_runs(
    schedule: Schedule, runs: Sequence[Run], orphans: Iterable[datetime], window: Window
) -> Coverage:
    """`orphans`: instants that have attempts and no run."""
    covered = coverage(schedule, runs, window)
    inside = [run for run in runs if window.since <= run.at < window.until]
    found = [*covered.findings, *_orphaned(schedule, orphans)]
    for run in inside:
        found += doubled(schedule, run)
        found += find_late(schedule, run, window)
        found += find_stuck(schedule, run, window)
        found += impossible(schedule, run)
        found += disagreeing(schedule, run)
    return Coverage(covered.expected, covered.recorded, tuple(found))


def _orphaned(schedule: Schedule, orphans: Iterable[datetime]) -> Iterator[Finding]:
    for at in orphans:
        yield schedule.finding(FindingKind.MISSING, "its attempts are on record, and it is not", at)
