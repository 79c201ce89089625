"""The report of an audit: all findings are counted, and a limited number is kept."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import Finding, FindingKind

MAX_FINDINGS: Final = 100  # in a report, by default


@dataclass(frozen=True, slots=True)
class MissedHeartbeat:
    """A component that has not done the work that was due at `since`."""

    component: str  # "ticker" or "pool default"
    since: datetime


@dataclass(slots=True, kw_only=True)
class Report:
    """The counts and the findings of an audit.

    `expected` counts the required scheduled times, and `recorded` those with a row or a range.
    """

    since: datetime
    until: datetime
    limit: int = MAX_FINDINGS
    schedules: int = 0
    runs: int = 0
    expected: int = 0
    recorded: int = 0
    counts: Counter[FindingKind] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    missed_heartbeats: list[MissedHeartbeat] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.counts and not self.missed_heartbeats

    @property
    def omitted(self) -> int:
        """Return the number of findings beyond the limit."""
        return self.counts.total() - len(self.findings)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.counts[finding.kind] += 1
            if len(self.findings) < self.limit:
                self.findings.append(finding)

    def add_coverage(self, coverage: Coverage) -> None:
        self.expected += coverage.expected
        self.recorded += coverage.recorded
        self.add_findings(coverage.findings)
