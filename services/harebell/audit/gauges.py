"""The result of an audit as gauges, on a port or in a file that a Prometheus exporter reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from harebell.audit.model.records import FindingKind
from harebell.audit.model.report import Report
from harebell.contract.errors import HarebellError, InvalidInput


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of one audit, and the time of the result."""

    result: Report | HarebellError
    at: datetime


class AuditGauges(Collector):
    """The gauges of the last audit. An audit that could not read the database has no findings.

    Before the first audit has ended, no gauge has a value.
    """

    def __init__(self, last: Audited | None = None) -> None:
        self._last = last

    def record(self, audited: Audited) -> None:
        """Show this audit from now on."""
        self._last = audited

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of one audit, also while the next one is recorded."""
        if (last := self._last) is None:
            return
        result = last.result
        yield GaugeMetricFamily(
            "harebell_audit_success",
            "Success of the last audit, 1 if it read the database and 0 if not.",
            value=float(isinstance(result, Report)),
        )
        yield GaugeMetricFamily(
            "harebell_audit_timestamp_seconds",
            "Time of the last audit [s since 1970].",
            value=last.at.timestamp(),
        )
        if not isinstance(result, Report):
            return
        findings = GaugeMetricFamily(
            "harebell_audit_findings", "Findings of the last audit.", labels=["kind"]
        )
        for kind in FindingKind:
            findings.add_metric([kind.value], result.counts[kind])
        yield findings
        yield GaugeMetricFamily(
            "harebell_audit_missed_heartbeats",
            "Components without a heartbeat at the last audit.",
            value=len(result.missed_heartbeats),
        )


@contextmanager
def serve_gauges(gauges: AuditGauges, *, host: str, port: int) -> Iterator[None]:
    """Answer GET requests for /metrics with the gauges, in a thread, until the end of the block.

    Raises `InvalidInput` if the port is not free or the address is not one of this machine.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=_registry(gauges))
    except OSError as error:
        reason = f"No server can listen on {host}:{port}: {error.strerror or error}."
        raise InvalidInput(reason, field="metrics_port", code="not_available") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_gauges(path: Path, audited: Audited) -> str | None:
    """Replace the file with the gauges, and return the failure or None.

    A reader never sees a part of the file, because the new file replaces the old one at once.
    """
    try:
        write_to_textfile(str(path), _registry(AuditGauges(audited)))
    except OSError as error:
        return f"The gauges were not written to {path}: {error.strerror or error}."
    return None


def _registry(gauges: AuditGauges) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(gauges)
    return registry
