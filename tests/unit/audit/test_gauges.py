"""Tests of the gauges of an audit, as a Prometheus exporter reads them."""

import socket
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harebell.audit.gauges import Audited, AuditGauges, serve_gauges, write_gauges
from harebell.audit.model.records import FindingKind
from harebell.audit.model.report import MissedHeartbeat, Report
from harebell.contract.errors import DatabaseUnavailable, InvalidInput

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def gauges(path: Path) -> dict[tuple[str, ...], float]:
    return values(path.read_text())


def values(text: str) -> dict[tuple[str, ...], float]:
    """Return the value of each series by its name and the values of its labels."""
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, *each.labels.values()): each.value for each in samples}


def test_each_kind_of_finding_is_a_gauge_also_without_a_finding(tmp_path: Path) -> None:
    report = Report(since=NINE, until=NINE)
    report.counts[FindingKind.MISSING] = 3
    report.missed_heartbeats.append(MissedHeartbeat("ticker", NINE))

    assert write_gauges(tmp_path / "harebell.prom", Audited(report, NINE)) is None

    found = gauges(tmp_path / "harebell.prom")
    findings = {
        tuple(kind): value for (name, *kind), value in found.items() if name.endswith("findings")
    }
    assert len(findings) == len(FindingKind)
    assert sum(findings.values()) == findings["missing",] == 3
    assert found["harebell_audit_missed_heartbeats",] == 1
    assert found["harebell_audit_success",] == 1
    assert found["harebell_audit_timestamp_seconds",] == NINE.timestamp()


def test_failed_audit_has_no_findings_and_is_no_success(tmp_path: Path) -> None:
    error = DatabaseUnavailable("The database does not answer.")

    assert write_gauges(tmp_path / "harebell.prom", Audited(error, NINE)) is None

    assert set(gauges(tmp_path / "harebell.prom").items()) == {
        (("harebell_audit_success",), 0.0),
        (("harebell_audit_timestamp_seconds",), NINE.timestamp()),
    }


def test_file_that_cannot_be_written_is_a_failure_with_its_path(tmp_path: Path) -> None:
    report = Report(since=NINE, until=NINE)

    failure = write_gauges(tmp_path / "missing" / "harebell.prom", Audited(report, NINE))

    assert failure is not None
    assert str(tmp_path) in failure


def test_port_shows_the_last_audit_and_nothing_before_the_first(taken_port: int) -> None:
    shown = AuditGauges()
    report = Report(since=NINE, until=NINE)
    report.counts[FindingKind.STUCK] = 2

    # Another address of the loopback network has the port free.
    with serve_gauges(shown, host="127.0.0.2", port=taken_port):
        url = f"http://127.0.0.2:{taken_port}/metrics"

        def found() -> dict[tuple[str, ...], float]:
            with urllib.request.urlopen(url, timeout=5) as response:
                return values(response.read().decode())

        before = found()
        shown.record(Audited(DatabaseUnavailable("The database does not answer."), NINE))
        failed = found()
        shown.record(Audited(report, NINE))
        after = found()

    assert before == {}
    assert failed["harebell_audit_success",] == 0
    assert after["harebell_audit_success",] == 1
    assert after["harebell_audit_findings", "stuck"] == 2


def test_port_that_is_not_free_is_named(taken_port: int) -> None:
    with (
        pytest.raises(InvalidInput) as raised,
        serve_gauges(AuditGauges(), host="127.0.0.1", port=taken_port),
    ):
        pass

    assert raised.value.field == "metrics_port"
    assert f"127.0.0.1:{taken_port}" in raised.value.reason
