"""Tests of the report, which counts all findings and keeps some."""

from datetime import datetime
from uuid import UUID

from tests.fakes.tickets import NINE, after

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import Finding, FindingKind
from harebell.audit.model.report import MAX_FINDINGS, MissedHeartbeat, Report


def missing(at: datetime) -> Finding:
    return Finding(
        kind=FindingKind.MISSING,
        tenant="acme",
        schedule_id=UUID(int=1),
        key="k",
        at=at,
        text="missing",
    )


def report(*, limit: int = MAX_FINDINGS) -> Report:
    return Report(since=NINE, until=after(60), limit=limit)


def test_report_counts_all_findings_and_keeps_the_first_ones() -> None:
    result = report(limit=2)

    result.add_coverage(Coverage(5, 2, tuple(missing(after(n)) for n in range(3))))

    assert (result.expected, result.recorded) == (5, 2)
    assert result.counts == {FindingKind.MISSING: 3}
    assert (len(result.findings), result.omitted) == (2, 1)
    assert not result.is_clean


def test_report_is_not_clean_when_a_heartbeat_is_missed() -> None:
    result = report()
    assert result.is_clean

    result.missed_heartbeats.append(MissedHeartbeat("ticker", NINE))

    assert not result.is_clean
