"""What a checker says: findings by kind, the figures of a run, and how it is put in a line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    LOST = "lost"  # owed, and neither run nor excused on the record
    DOUBLED = "doubled"  # ran or succeeded once more than a crash explains
    CONCURRENT = "concurrent"  # two at once, where there is to be one
    EARLY = "early"
    LATE = "late"
    AFTER_CANCEL = "after_cancel"  # or after a pause, or of a version that was replaced
    PHANTOM = "phantom"  # nobody owed it
    UNTOLD = "untold"  # a command that was not answered, or refused without reason
    RECORD = "record"  # the ledger contradicts itself or the target


@dataclass(frozen=True)
class Finding:
    kind: Kind
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.what}"


@dataclass(frozen=True)
class Verdict:
    """Of one history, or of several together."""

    findings: Sequence[Finding]
    owed: int = 0
    ran: int = 0
    excused: int = 0  # owed and not run, as a policy or a command says, on the record
    repeated: int = 0  # second attempts that a crash explains
    recovery: float = 0.0  # seconds from healing to the start of the last run that had waited
    lateness: float = 0.0  # seconds, the worst while nothing was disturbed
    notes: Mapping[str, float] = field(default_factory=dict)  # what a fault measured by itself

    @property
    def is_kept(self) -> bool:
        return not self.findings

    def counts(self) -> dict[str, int]:
        found = Counter(str(finding.kind) for finding in self.findings)
        return {kind: found[kind] for kind in Kind}

    def as_json(self) -> dict[str, Any]:
        figures = {name: round(value, 3) for name, value in self.notes.items()}
        return {
            "owed": self.owed,
            "ran": self.ran,
            "excused": self.excused,
            "repeated": self.repeated,
            "recovery": round(self.recovery, 3),
            "lateness": round(self.lateness, 3),
            **self.counts(),
            **figures,
        }

    def __str__(self) -> str:
        said = [f"{name} {count}" for name, count in self.counts().items() if count]
        if died := self.notes.get("died"):
            said.append(f"{died:.0f} ended by themselves")
        return (
            f"owed {self.owed}, ran {self.ran}, excused {self.excused}, "
            f"repeated {self.repeated}, recovered in {self.recovery:.1f} s: "
            + ", ".join(said or ["kept"])
        )


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # the command's output
