"""A fake ticker whose ledger an audit reads."""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tests.fakes.ledger.runs import RUNS
from tests.fakes.ledger.runs import Run as LedgerRun
from tests.fakes.ledger.schedules import STATES, VERSIONS
from tests.fakes.schedules import ID
from tests.fakes.ticker import EXECUTOR, TENANT, FakeTicker

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import (
    Attempt,
    Finding,
    FindingKind,
    Run,
    Schedule,
    Window,
    read_schedule,
)
from harebell.audit.model.rules import check_runs, check_schedule
from harebell.domain.run_states import ENDED, FAILED, SUCCEEDED, RunState

NEVER_LATE: Final = timedelta(days=365)  # for rules that do not check the lateness
_COMPUTED: Final = ("attempts", "first_staged_at", "target")
_COLUMNS: Final = tuple(each.name for each in fields(Run) if each.name not in _COMPUTED)


class AuditedTicker(FakeTicker):
    """A fake ticker with the schedule and the runs as the audit reads them."""

    @property
    def schedule(self) -> Schedule:
        tables = self.ledger.store.tables
        state = tables[STATES][ID]
        row = state | {
            "id": ID,
            "tenant": TENANT,
            "key": "k",
            "shown_version": state["version"],
        }
        handover = {"planned_from": None, "planned_until": None}
        versions = [handover | version for _, version in sorted(tables[VERSIONS].items())]
        schedule = read_schedule(row, versions)
        assert isinstance(schedule, Schedule)
        return schedule

    @property
    def runs(self) -> list[Run]:
        """The rows of the ledger with their attempts, in the order of their scheduled times."""
        rows = sorted(self.ledger.store.tables[RUNS].items())
        return [_audited_run(row, self.now) for _, row in rows]

    def window(self, *, late_after: timedelta = NEVER_LATE) -> Window:
        """The last day."""
        return Window(
            since=self.now - timedelta(days=1),
            until=self.now,
            now=self.now,
            late_after=late_after,
        )

    def check(self, *runs: Run, late_after: timedelta = NEVER_LATE) -> Coverage:
        """The coverage of these runs, or else of all runs."""
        window = self.window(late_after=late_after)
        return check_runs(self.schedule, runs or self.runs, [], window=window)

    def findings(self) -> list[Finding]:
        """Return all findings about the schedule and its runs."""
        return [*check_schedule(self.schedule, self.window()), *self.check().findings]


def _audited_run(row: LedgerRun, now: datetime) -> Run:
    """Add the columns and attempts that the fake ticker does not write."""
    is_running = row.state is RunState.RUNNING
    outcome = SUCCEEDED if row.state is RunState.SUCCEEDED else FAILED
    completed = range(1, row.attempt + 1 - is_running)
    changes = {
        "outcome": row.state if row.state in ENDED else None,
        "lease_holder": EXECUTOR if is_running else None,
        "lease_until": now if is_running else None,
        "started_at": None,
        "first_staged_at": row.first_ticket_at,
        "attempts": tuple(attempt_row(number, outcome, row.due_at) for number in completed),
    }
    return Run(**{name: getattr(row, name) for name in _COLUMNS} | changes)


def attempt_row(
    number: int, outcome: str, started_at: datetime, *, replay_number: int = 0
) -> Attempt:
    return Attempt(
        replay_number=replay_number, number=number, outcome=outcome, started_at=started_at
    )


def run_row(time: datetime, **columns: Any) -> Run:
    """A staged run of version 1, with other values for the given columns."""
    run = Run(
        scheduled_for=time,
        tenant=TENANT,
        version=1,
        origin=None,
        state=RunState.STAGED,
        reason=None,
        outcome=None,
        seq=1,
        replay_number=0,
        attempt=0,
        due_at=time,
        expires_at=None,
        next_attempt_at=None,
        lease_holder=None,
        lease_until=None,
        staged_at=time,
        first_staged_at=time,
        started_at=None,
        finished_at=None,
        range_until=None,
        range_count=None,
    )
    return replace(run, **columns)


def finding_kinds(coverage: Coverage) -> list[FindingKind]:
    return [finding.kind for finding in coverage.findings]
