"""What an audit looked at and what it found: counted whole, told up to a bound."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import Finding, FindingKind

MAX_FINDINGS: Final = 100  # findings that are told, unless told otherwise


@dataclass(frozen=True, slots=True)
class MissedHeartbeat:
    """`who` has left undone what was due at `since`."""

    component: str
    since: datetime


@dataclass(slots=True)
class Report:
    """`owed`: instants of timetables that were decided; `recorded`: those on record."""

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
        return self.counts.total() - len(self.findings)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.counts[finding.kind] += 1
            if len(self.findings) < self.limit:
                self.findings.append(finding)

    def add_coverage(self, covered: Coverage) -> None:
        self.expected += covered.expected
        self.recorded += covered.recorded
        self.add_findings(covered.findings)
