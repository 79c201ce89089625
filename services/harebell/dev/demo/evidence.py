"""What is known of the runs, from two sides: a row of the ledger, and a call the target got."""

import json
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from harebell.client import View
from harebell.kernel.ledger import ENDED, RunState


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """As the ledger has it. `late_ms` is of the first start; a replay has none."""

    run_id: str
    key: str
    due_at: datetime
    started_at: datetime | None  # of the latest attempt
    late_ms: float | None
    attempt: int
    series: int
    state: RunState

    @classmethod
    def of(cls, view: View) -> "LedgerRun":
        started_at = view["started_at"]
        return cls(
            run_id=view["run_id"],
            key=view["key"],
            due_at=datetime.fromisoformat(view["due_at"]),
            started_at=None if started_at is None else datetime.fromisoformat(started_at),
            late_ms=view["late_ms"],
            attempt=view["attempt"],
            series=view["series"],
            state=RunState(view["state"]),
        )

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class TargetCall:
    """As the target wrote it down."""

    run_id: str
    started_at: datetime
    well: bool  # whether it was answered with 200

    @classmethod
    def parse(cls, line: str) -> "TargetCall":
        fields = json.loads(line)
        return cls(
            run_id=fields["run_id"],
            started_at=datetime.fromisoformat(fields["started_at"]),
            well=fields["status"] == HTTPStatus.OK,
        )
