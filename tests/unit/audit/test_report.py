"""A report counts all and tells some."""

from datetime import datetime
from uuid import UUID

from tests.fakes.tickets import NINE, after

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import Finding, FindingKind
from harebell.audit.model.report import MissedHeartbeat, Report


def lost(at: datetime) -> Finding:
    return Finding(FindingKind.MISSING, "acme", UUID(int=1), "k", at, "lost")


def test_all_findings_are_counted_and_some_are_told() -> None:
    report = Report(NINE, after(60), limit=2)

    report.add_coverage(Coverage(5, 2, tuple(lost(after(n)) for n in range(3))))

    assert (report.expected, report.recorded) == (5, 2)
    assert report.counts == {FindingKind.MISSING: 3}
    assert (len(report.findings), report.omitted) == (2, 1)
    assert not report.is_clean


def test_silence_alone_is_not_clean() -> None:
    assert Report(NINE, after(60)).is_clean
    assert not Report(NINE, after(60), missed_heartbeats=[MissedHeartbeat("ticker", NINE)]).is_clean
