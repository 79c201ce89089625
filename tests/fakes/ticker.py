"""A ticker without servers: books are loaded, changed and written back on a ledger in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.fakes.schedules import HORIZON, ID, TASK

from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse, ScheduleResponse
from harebell.domain.run_states import OPEN, RESTAGEABLE, NewRun, Reason, RunState, unstaged_state
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model import planning, run_rows
from harebell.ticker.model.outcomes import apply_outcomes
from harebell.ticker.model.unit_of_work import Ended, LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import VersionStatus

TENANT = "default"


@dataclass
class Row:
    """A run, as the ledger has it."""

    version: int
    due_at: datetime
    counts: bool
    seq: int = 1
    state: RunState = RunState.STAGED
    reason: Reason | None = None
    attempt: int = 0
    started: bool = False
    again: bool = False  # a later series
    finished_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def is_counted(self) -> bool:
        return self.counts and not (self.state is RunState.CANCELLED and self.attempt == 0)

    @property
    def is_revivable(self) -> bool:
        return self.state is RunState.CANCELLED and self.reason in RESTAGEABLE and self.attempt == 0


@dataclass
class FakeTicker:
    """One schedule, its ledger, and what tickers and executors do to them."""

    now: datetime
    stored_record: ScheduleRecord | None = None
    rows: dict[RunKey, Row] = field(default_factory=dict)
    skipped_counts: dict[datetime, int] = field(default_factory=dict)
    version_statuses: dict[int, tuple[VersionStatus, str | None]] = field(default_factory=dict)

    # what users ask for

    def put(self, when: dict[str, Any], **more: Any) -> ScheduleResponse | RunResponse:
        return self.send("schedule.put", key="k", when=when, **{"target": TASK, **more})

    def send(self, verb: str, **body: Any) -> ScheduleResponse | RunResponse:
        return self.send_all((verb, body))[0]

    def send_all(
        self, *commands: tuple[str, dict[str, Any]]
    ) -> list[ScheduleResponse | RunResponse]:
        """In one transaction."""
        book = self.load_unit()
        answers = [apply_command(book, self.context_of(verb, body)) for verb, body in commands]
        self.save(book)
        return answers

    def context_of(self, verb: str, body: dict[str, Any]) -> CommandContext:
        command = SCHEDULE_COMMANDS[verb].model_validate(
            body if verb == "schedule.put" or "run_id" in body else {"key": "k", **body}
        )
        schedule = ID
        if isinstance(command, RunCancel | RunResolve):
            schedule = RunKey.parse(command.run_id).schedule_id
        return CommandContext(TENANT, command, schedule, self.now, "tester")

    # what a ticker does

    def load_unit(self) -> UnitOfWork:
        if self.stored_record is None:
            return UnitOfWork()
        book = UnitOfWork(
            schedules={ID: self.stored_record._replace(last_number=max(self.version_statuses, default=0))}
        )
        for key, row in self.rows.items():
            if not row.is_open:
                book.ended_runs[key] = Ended(row.state, row.finished_at or self.now)
            elif key.scheduled_for in self.stored_record.open_runs:
                book.open_runs[key] = self._open_run(key, row)
        return book

    def _open_run(self, key: RunKey, row: Row) -> LockedRun:
        holder = "executor-1" if row.state is RunState.RUNNING else None
        return LockedRun(
            *(key, row.state, row.attempt, row.seq, row.due_at, row.version, holder),
            is_from_recurrence=row.counts and not row.again,
            is_replayed=row.again,
            has_started=row.started,
            stop_reason=row.reason if holder else None,
        )

    def save(self, book: UnitOfWork) -> None:
        for key, reason in book.cancelled_runs.items():
            self._move(key, unstaged_state(reason), reason)
        for key, state in book.resolved_runs.items():
            self.rows[key].state = state
        for version, fate in book.new_versions:
            self.version_statuses[version.number] = (fate, None)
        self._settle(book.version_statuses)
        for key, why in book.stop_requests.items():
            self.rows[key].reason = why
        for key, version in book.moved_to_version.items():
            row = self.rows[key]
            assert row.state is RunState.STAGED
            self.rows[key] = replace(row, version=version.number, seq=row.seq + 1)
        for extra, _ in book.dropped_manual_runs:
            self.skipped_counts[extra.scheduled_for] = 1
        beside = [run_rows.manual_run_row(extra) for extra in book.manual_runs]
        assert len(self.stage(beside, counts=False)) == len(beside)
        for id_ in book.changed_ids:
            self._advance(planning.plan_if_due(book.schedules[id_], self.now, self.horizon))

    @property
    def horizon(self) -> datetime:
        return self.now + HORIZON

    def stage_all(self) -> "FakeTicker":
        while self.stored_record and self.stored_record.next_at and self.stored_record.next_at <= self.horizon:
            self._advance(planning.plan_schedule(self.stored_record, self.now, self.horizon))
        return self

    def reconcile(self) -> "FakeTicker":
        """As a ticker does that has heard of an outcome."""
        book = self.load_unit()
        apply_outcomes(book, self.record)
        self.save(book)
        return self

    def _settle(self, fates: Mapping[tuple[UUID, int], tuple[VersionStatus, str | None]]) -> None:
        self.version_statuses |= {number: fate for (_, number), fate in fates.items()}

    def _advance(self, made: planning.PlanningStep) -> None:
        self._settle(made.version_statuses)
        again, not_again = run_rows.restage(made.previous, self._taken_back(), self.now)
        for each in (*made.skipped, *not_again):
            row = self.rows.get(each.key)
            if row is None or row.is_revivable:
                self.rows.pop(each.key, None)
                self.skipped_counts[each.key.scheduled_for] = each.count
        staged = self.stage([*made.to_stage, *made.to_stage_early, *again], counts=True)
        doubtful = planning.probably_finished(made.record, self.now)
        ended = {key for key in doubtful if key not in self.rows or not self.rows[key].is_open}
        unstaged = planning.not_newly_staged(made, staged)
        there = {key for key in unstaged if self.rows[key].is_counted}
        self.stored_record = planning.with_staged_runs(made, staged, ended, there)

    def _taken_back(self) -> set[RunKey]:
        return {
            key
            for key, row in self.rows.items()
            if row.is_revivable and row.reason is Reason.PAUSED and row.counts
        }

    def stage(self, owed: Iterable[NewRun], *, counts: bool) -> set[RunKey]:
        """As the ledger's statement: a new row, or one that may be owed again."""
        staged = set()
        for run in owed:
            row = self.rows.get(run.key)
            if row is None:
                self.rows[run.key] = Row(run.placement.version, run.due_at, counts)
            elif row.is_revivable:
                self.rows[run.key] = Row(run.placement.version, run.due_at, counts, row.seq + 1)
            else:
                continue
            staged.add(run.key)
        return staged

    # what executors do

    def claim(self, moment: datetime, *, started: bool = False) -> None:
        row = self._row(moment)
        assert row.state in (RunState.STAGED, RunState.RETRYING)
        row.state, row.attempt, row.started = RunState.RUNNING, row.attempt + 1, started
        row.seq += 1

    def cancel_unstarted(self, moment: datetime) -> None:
        """Asked to stop before it started: as if never attempted."""
        row = self._row(moment)
        assert row.state is RunState.RUNNING
        assert row.reason is not None
        row.attempt -= 1
        self._move(RunKey(moment, ID), RunState.CANCELLED, row.reason)

    def complete(self, moment: datetime, state: RunState = RunState.SUCCEEDED) -> None:
        assert self._row(moment).state is RunState.RUNNING
        self._move(RunKey(moment, ID), state, None)

    def run_due(self) -> None:
        """All that is staged and due runs at once."""
        for key, row in list(self.rows.items()):
            if row.state is RunState.STAGED and row.due_at <= self.now:
                self.claim(key.scheduled_for, started=True)
                self.complete(key.scheduled_for)

    def wait(self, seconds: float) -> "FakeTicker":
        self.now += timedelta(seconds=seconds)
        return self

    # what became of it

    def _row(self, moment: datetime) -> Row:
        return self.rows[RunKey(moment, ID)]

    def _move(self, key: RunKey, state: RunState, reason: Reason | None) -> None:
        row = self.rows[key]
        assert row.is_open
        row.state, row.reason, row.finished_at = state, reason, self.now
        row.seq += 1

    def times_in(self, *states: RunState) -> list[datetime]:
        return sorted(key.scheduled_for for key, row in self.rows.items() if row.state in states)

    @property
    def staged_times(self) -> list[datetime]:
        return self.times_in(RunState.STAGED)

    @property
    def record(self) -> ScheduleRecord:
        assert self.stored_record is not None
        return self.stored_record
