"""The in-memory ticker as an audit finds it in the tables: versions, spans, rows of runs."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.fakes.schedules import ID
from tests.fakes.ticker import TENANT, Row, FakeTicker

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import (
    Attempt,
    Finding,
    FindingKind,
    Run,
    Schedule,
    Span,
    Window,
    without_overlaps,
)
from harebell.audit.model.rules import check_runs, check_schedule
from harebell.contract.ids import RunKey
from harebell.domain.recurrence import initial_cursor
from harebell.domain.run_states import ENDED, FAILED, SUCCEEDED, Reason, RunState, SkippedRange
from harebell.ticker.model import planning
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus

PATIENT = timedelta(days=365)  # for rules that are not about delays


@dataclass
class Audited(FakeTicker):
    versions: dict[int, Version] = field(default_factory=dict)
    takeovers: list[VersionHandover] = field(default_factory=list)
    ranges: dict[datetime, SkippedRange] = field(default_factory=dict)
    beside: dict[datetime, Reason] = field(default_factory=dict)  # triggered, and stopped at once

    def save(self, book: UnitOfWork) -> None:
        self.versions |= {version.number: version for version, _ in book.new_versions}
        self.takeovers += book.handovers
        super().save(book)
        for extra, reason in book.dropped_manual_runs:
            self.beside[extra.scheduled_for] = reason

    def _advance(self, made: planning.PlanningStep) -> None:
        for each in made.skipped:
            row = self.rows.get(each.key)
            if row is None or row.is_revivable:
                self.ranges[each.key.scheduled_for] = each
        self.takeovers += [made.handover] if made.handover else []
        super()._advance(made)

    @property
    def schedule(self) -> Schedule:
        entry = self.record
        return Schedule(
            ID,
            TENANT,
            "k",
            entry.version.number,
            entry.version.number,
            entry.state,
            entry.planned_until,
            entry.dispatched,
            entry.next_at,
            entry.awaited_run,
            entry.pending.since if entry.pending else None,
            without_overlaps(self._spans()),
        )

    def _spans(self) -> Iterator[Span]:
        begun = {each.to_version: each.planned_from for each in self.takeovers}
        over = {each.from_version: each.planned_until for each in self.takeovers}
        for number, version in self.versions.items():
            after = begun.get(number) or initial_cursor(version.recurrence, version.since)
            to = over.get(number, self.record.planned_until)
            commenced = self.version_statuses[number][0] is VersionStatus.ACTIVE
            table, since = version.recurrence, version.since
            yield Span(number, version.definition, table, since, after, to, commenced)

    @property
    def runs(self) -> list[Run]:
        runs = [self._run(key, row) for key, row in self.rows.items()]
        known = {run.scheduled_for for run in runs}
        skipped = {at: self._skipped(at, reason, at, 1) for at, reason in self.beside.items()}
        for at, each in self.ranges.items():
            skipped[at] = self._skipped(at, each.reason, each.until, each.count)
        left = [run for at, run in skipped.items() if at not in known]
        return sorted((*runs, *left), key=lambda run: run.scheduled_for)

    def _run(self, key: RunKey, row: Row) -> Run:
        is_running = row.state is RunState.RUNNING
        outcome = SUCCEEDED if row.state is RunState.SUCCEEDED else FAILED
        tried = range(1, row.attempt + 1 - is_running)
        return a_run(
            key.scheduled_for,
            version=row.version,
            origin=None if row.counts else "trigger",
            state=row.state,
            reason=row.reason,
            outcome=row.state if row.state in ENDED else None,
            seq=row.seq,
            attempt=row.attempt,
            due_at=row.due_at,
            lease_holder="executor-1" if is_running else None,
            lease_until=self.now if is_running else None,
            finished_at=(row.finished_at or self.now) if row.state in ENDED else None,
            attempts=tuple(Attempt(1, number, outcome, row.due_at) for number in tried),
        )

    def _skipped(self, at: datetime, reason: Reason, until: datetime, count: int) -> Run:
        return a_run(
            at,
            state=RunState.SKIPPED,
            reason=reason,
            outcome=RunState.SKIPPED,
            finished_at=self.now,
            range_until=until,
            range_count=count,
        )

    def window(self, *, late_after: timedelta = PATIENT) -> Window:
        return Window(self.now - timedelta(days=1), self.now, self.now, late_after)

    def examine(self, *runs: Run, late_after: timedelta = PATIENT) -> Coverage:
        """These rows; else those that there are."""
        window = self.window(late_after=late_after)
        return check_runs(self.schedule, runs or self.runs, [], window)

    def findings(self) -> list[Finding]:
        return [*check_schedule(self.schedule, self.window()), *self.examine().findings]


def a_run(at: datetime, **columns: Any) -> Run:
    """A staged row of version 1, but for what is said."""
    run = Run(
        scheduled_for=at,
        tenant=TENANT,
        version=1,
        origin=None,
        state=RunState.STAGED,
        reason=None,
        outcome=None,
        seq=1,
        replay_number=0,
        attempt=0,
        due_at=at,
        expires_at=None,
        next_attempt_at=None,
        lease_holder=None,
        lease_until=None,
        staged_at=at,
        started_at=None,
        finished_at=None,
        range_until=None,
        range_count=None,
    )
    return replace(run, **columns)


def kinds(found: Coverage) -> list[FindingKind]:
    return [finding.kind for finding in found.findings]
