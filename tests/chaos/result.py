"""Results of the checker: findings, figures and their form as a line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FindingKind(StrEnum):
    """The promise that a finding breaks."""

    MISSING = "missing"  # an expected run that neither ran nor has an excuse in the ledger
    DUPLICATED = "duplicated"  # a run that ran or succeeded more often than a crash explains
    CONCURRENT = "concurrent"  # two attempts at one time where the policy permits one
    EARLY = "early"
    LATE = "late"
    AFTER_CANCEL = "after_cancel"  # a start after a cancellation, a pause or a replacement
    UNEXPECTED = "unexpected"  # a run that no schedule requires
    UNREPORTED = "unreported"  # a command without a response, or rejected without a reason
    INCONSISTENT = "inconsistent"  # the ledger contradicts itself or the target


@dataclass(frozen=True)
class Finding:
    """One broken promise. `key` names the schedule or the part that broke it."""

    kind: FindingKind
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The findings and figures of one history. Counts are numbers of runs."""

    findings: Sequence[Finding]
    expected: int = 0
    ran: int = 0
    excused: int = 0  # expected runs that a policy or a command withdrew, by the ledger
    repeated: int = 0  # second attempts that a crash explains
    recovery: float = 0.0  # seconds from the end of a fault to the last start that had waited
    lateness: float = 0.0  # seconds, the maximum while no fault was active
    measurements: Mapping[str, float] = field(default_factory=dict)  # figures of a fault

    @property
    def has_kept_promises(self) -> bool:
        return not self.findings

    def counts(self) -> dict[str, int]:
        found = Counter(str(finding.kind) for finding in self.findings)
        return {kind: found[kind] for kind in FindingKind}

    def as_json(self) -> dict[str, Any]:
        measurements = {name: round(value, 3) for name, value in self.measurements.items()}
        return {
            "expected": self.expected,
            "ran": self.ran,
            "excused": self.excused,
            "repeated": self.repeated,
            "recovery": round(self.recovery, 3),
            "lateness": round(self.lateness, 3),
            **self.counts(),
            **measurements,
        }

    def __str__(self) -> str:
        remarks = [f"{kind} {count}" for kind, count in self.counts().items() if count]
        if restarted := self.measurements.get("restarted"):
            remarks.append(f"{restarted:.0f} services restarted")
        return (
            f"expected {self.expected}, ran {self.ran}, excused {self.excused}, "
            f"repeated {self.repeated}, recovered in {self.recovery:.1f} s: "
            + ", ".join(remarks or ["kept"])
        )


def print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # the output of the command
