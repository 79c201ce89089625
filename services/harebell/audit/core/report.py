"""What an audit looked at and what it found: counted whole, told up to a bound."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from harebell.audit.core.coverage import Coverage
from harebell.audit.core.finding import Finding, Kind

MOST: Final = 100  # findings that are told, unless told otherwise


@dataclass(frozen=True, slots=True)
class Silence:
    """`who` has left undone what was due at `since`."""

    who: str
    since: datetime


@dataclass(slots=True)
class Report:
    """`owed`: instants of timetables that were decided; `recorded`: those on record."""

    since: datetime
    until: datetime
    most: int = MOST
    schedules: int = 0
    runs: int = 0
    owed: int = 0
    recorded: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.counts and not self.silences

    @property
    def untold(self) -> int:
        return self.counts.total() - len(self.findings)

    def find(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.counts[finding.kind] += 1
            if len(self.findings) < self.most:
                self.findings.append(finding)

    def cover(self, covered: Coverage) -> None:
        self.owed += covered.owed
        self.recorded += covered.recorded
        self.find(covered.findings)
