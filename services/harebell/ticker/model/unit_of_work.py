"""The unit of work: the schedules and locked runs that one batch reads and changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.types import EARLIEST
from harebell.domain.planner import remaining_runs
from harebell.domain.recurrence import RESOLUTION, recurs_at
from harebell.domain.run_states import Reason, RunResult, RunState, ScheduleState, visible_state
from harebell.ticker.model.version import (
    CalendarKey,
    StoredCalendar,
    Version,
    VersionHandover,
    VersionStatus,
)


class ScheduleRecord(NamedTuple):
    """A schedule with the state of its planning.

    A tuple, because each step of a pass creates a changed copy (decision 20).
    """

    version: Version  # the version in force
    state: ScheduleState
    planned_until: datetime
    changed_at: datetime
    next_at: datetime | None = None
    dispatched: int = 0
    open_runs: tuple[datetime, ...] = ()
    reason: str | None = None
    awaited_run: datetime | None = None  # the run of a sequential schedule that must end first
    consecutive_failures: int = 0
    # The end of the pause, or of the last one as long as it decides which times are missed.
    paused_until: datetime | None = None
    pending: tuple[Version, ...] = ()  # in the order of their effective times
    skipped_times: tuple[datetime, ...] = ()  # scheduled times that a user skipped
    last_number: int = 0  # of all versions, including those that never became active
    executions: int = 0  # of runs that are no longer among the open runs
    failures: int = 0  # likewise, of dead runs
    last_run: datetime | None = None  # the latest run that is no longer among the open runs
    to_restage: tuple[datetime, ...] = ()  # not stored: runs that a pause unstaged
    ended_runs: frozenset[datetime] = frozenset()  # not stored: open runs whose rows have ended

    @property
    def next_number(self) -> int:
        """Return the number of the next version."""
        pending = (each.number for each in self.pending)
        return max(self.last_number, self.version.number, *pending) + 1

    @property
    def id(self) -> UUID:
        return self.version.schedule_id

    @property
    def next_time(self) -> datetime | None:
        """Return the next time of the version in force, or None after the last of `times`."""
        remaining = remaining_runs(self.version.policy, self.dispatched)
        return None if remaining == 0 else self.version.recurrence.next_after(self.planned_until)

    @property
    def pending_at(self) -> datetime | None:
        """Return the effective time of the next pending version."""
        return self.pending[0].since if self.pending else None

    def counts_later(self, run: datetime) -> bool:
        """Return whether planning has yet to count an open run.

        A pause or a block moved the cursor before the run, or a pending version has staged it early
        and its activation plans it once more.
        """
        is_stopped = self.state in (ScheduleState.PAUSED, ScheduleState.BLOCKED)
        is_early = self.pending_at is not None and run >= self.pending_at
        return is_early or (is_stopped and run > self.planned_until)

    def version_at(self, time: datetime) -> Version:
        """Return the version that is in force at a future time."""
        return next((each for each in reversed(self.pending) if time >= each.since), self.version)

    @property
    def visible_state(self) -> ScheduleState:
        """Return the state that users see. A schedule with an open run is not completed."""
        has_open_run = any(time not in self.ended_runs for time in self.open_runs)
        return visible_state(self.state, has_open_run=has_open_run)

    def with_last_run(self, time: datetime) -> "ScheduleRecord":
        """Return the schedule with a run that has ended and is not among the open runs."""
        return self._replace(last_run=max(time, self.last_run or time))

    def with_skipped_run(self, time: datetime) -> "ScheduleRecord":
        """Return the schedule with a skipped time, which is its last run if no run has executed."""
        return self if self.executions else self.with_last_run(time)

    def with_results(self, results: Mapping[datetime, RunResult | None]) -> "ScheduleRecord":
        """Count the runs that have just left the open runs, each once.

        A run without a result has no row.
        A replay adds its run to the open runs again and subtracts the run from the counts.
        """
        ended = {time: each for time, each in results.items() if each is not None}
        if not ended:
            return self
        has_executed = any(each.is_execution for each in ended.values())
        counted = self._replace(
            # Without an execution, the last run may be a later time that was skipped.
            last_run=None if has_executed and not self.executions else self.last_run,
            executions=self.executions + sum(each.is_execution for each in ended.values()),
            failures=self.failures + sum(each.is_failure for each in ended.values()),
        )
        last = max((time for time, each in ended.items() if not each.is_unstaged), default=None)
        return counted if last is None else counted.with_last_run(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRun:
    """A locked row of the ledger."""

    key: RunKey
    state: RunState
    attempt: int
    seq: int
    due_at: datetime
    version: int
    lease_holder: str | None
    is_from_recurrence: bool  # neither manual nor replayed: the run counts towards `times`
    has_started: bool  # by the last lease renewal
    stop_reason: str | None = None  # None: no stop request
    is_replayed: bool = False  # by a replay, or by a retry of an unresolved run
    finished_at: datetime | None = None
    is_unstaged: bool = False  # by a pause or by a new version, before the first attempt

    @property
    def result(self) -> RunResult:
        return RunResult(self.state, self.attempt, self.is_unstaged)

    @property
    def cancelled_result(self) -> RunResult:
        """Return the result of an open run that this transaction cancels."""
        return RunResult(RunState.CANCELLED, self.attempt)

    @property
    def is_unattempted(self) -> bool:
        """Return whether the run is staged without an attempt, so that it can be unstaged."""
        return self.state is RunState.STAGED and self.attempt == 0 and not self.is_replayed

    @property
    def is_unstarted_claim(self) -> bool:
        """Return whether the run is in its first claim and has not started.

        A stop request cancels such a run as if it had no attempt.
        """
        return self.state is RunState.RUNNING and self.attempt == 1 and not self.has_started


class ManualRunOrigin(StrEnum):
    """The command that created a manual run."""

    TRIGGER = "trigger"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualRun:
    """A manual run to stage. `overlap` and `trace` replace those of the version."""

    version: Version
    scheduled_for: datetime
    origin: ManualRunOrigin
    overlap: Overlap | None = None
    trace: Mapping[str, str] | None = None  # the JSON of a `TraceOrigin`

    @property
    def key(self) -> RunKey:
        return RunKey(self.scheduled_for, self.version.schedule_id)


@dataclass(slots=True, kw_only=True)
class UnitOfWork:
    """The locked schedules and runs of a batch, with every change to write."""

    schedules: dict[UUID, ScheduleRecord] = field(default_factory=dict)
    open_runs: dict[RunKey, LockedRun] = field(default_factory=dict)
    ended_runs: dict[RunKey, LockedRun] = field(default_factory=dict)  # includes unresolved runs
    changed_ids: set[UUID] = field(default_factory=set)
    new_versions: list[tuple[Version, VersionStatus]] = field(default_factory=list)
    versions_in_force: list[Version] = field(default_factory=list)  # that became active
    version_statuses: dict[tuple[UUID, int], tuple[VersionStatus, str | None]] = field(
        default_factory=dict
    )
    handovers: list[VersionHandover] = field(default_factory=list)
    cancelled_runs: dict[RunKey, Reason] = field(default_factory=dict)
    moved_to_version: dict[RunKey, Version] = field(default_factory=dict)
    new_due_times: dict[RunKey, datetime] = field(default_factory=dict)  # of some moved runs
    resolved_runs: dict[RunKey, RunState] = field(default_factory=dict)
    stop_requests: dict[RunKey, Reason | None] = field(default_factory=dict)  # None: withdrawn
    manual_runs: list[ManualRun] = field(default_factory=list)
    dropped_manual_runs: list[tuple[ManualRun, Reason]] = field(default_factory=list)
    calendars: dict[CalendarKey, StoredCalendar] = field(default_factory=dict)
    new_calendars: list[StoredCalendar] = field(default_factory=list)
    unused_calendars: set[tuple[str, str, UUID]] = field(default_factory=set)

    @property
    def moved_runs(self) -> list[RunKey]:
        """Return the runs that need a new ticket: moved to a version, or resolved as a retry."""
        retried = (key for key, state in self.resolved_runs.items() if state is RunState.STAGED)
        return sorted({*self.moved_to_version, *retried})

    def update(self, record: ScheduleRecord) -> ScheduleRecord:
        self.schedules[record.id] = record
        self.changed_ids.add(record.id)
        return record

    def update_calendar(self, calendar: StoredCalendar) -> None:
        """Add a new version of a calendar."""
        self.calendars[calendar.key] = calendar
        self.new_calendars.append(calendar)

    def open_runs_of(self, record: ScheduleRecord) -> list[LockedRun]:
        keys = (RunKey(time, record.id) for time in record.open_runs)
        return [run for key in keys if (run := self.open_runs.get(key)) is not None]

    def has_ended(self, record: ScheduleRecord) -> bool:
        """Return whether the schedule is cancelled, or completed without an open run.

        A schedule with a pending version has not ended.
        """
        if record.pending:
            return False
        is_over = record.state is ScheduleState.COMPLETED and not self.open_runs_of(record)
        return is_over or record.state is ScheduleState.CANCELLED

    def claimed_runs(self, record: ScheduleRecord) -> list[LockedRun]:
        """Return the runs that an executor has claimed."""
        return [run for run in self.open_runs_of(record) if run.state is RunState.RUNNING]

    def cancel(self, run: LockedRun, reason: Reason) -> None:
        self.cancelled_runs[run.key] = reason
        self.moved_to_version.pop(run.key, None)
        del self.open_runs[run.key]

    def move_to_version(
        self, run: LockedRun, version: Version, due_at: datetime | None = None
    ) -> None:
        """Keep the run staged, but with the run spec of another version.

        With `due_at`, the run gets this due time, and no blackout holds it back any longer.
        """
        self.moved_to_version[run.key] = version
        if due_at is not None:
            self.new_due_times[run.key] = due_at
        self.open_runs[run.key] = replace(run, version=version.number, due_at=due_at or run.due_at)

    def request_stop(self, runs: list[LockedRun], reason: Reason | None) -> None:
        """Request a stop of claimed runs, or withdraw the request of a pause with None.

        A stop request with another reason than a pause stays.
        """
        for run in runs:
            if run.stop_reason is None or run.stop_reason == Reason.PAUSED:
                self.stop_requests[run.key] = reason
                self.open_runs[run.key] = replace(run, stop_reason=reason)

    def drop_manual_runs(self, record: ScheduleRecord, reason: Reason) -> ScheduleRecord:
        """Drop the manual runs that this batch created and that have no row yet."""
        dropped = [each for each in self.manual_runs if each.version.schedule_id == record.id]
        self.manual_runs = [each for each in self.manual_runs if each not in dropped]
        self.dropped_manual_runs += [(each, reason) for each in dropped]
        times = {each.scheduled_for for each in dropped}
        return record._replace(
            open_runs=tuple(time for time in record.open_runs if time not in times)
        )

    def unstage(
        self,
        record: ScheduleRecord,
        reason: Reason,
        *,
        include_retrying: bool = False,
        since: datetime = EARLIEST,
    ) -> ScheduleRecord:
        """Cancel the unattempted runs from `since` on, and runs between attempts on request.

        The cursor moves before the earliest cancelled run, so that planning can stage it again, and
        before claimed runs that a stop request may still cancel. What remains as the number of
        dispatched runs is the number up to the new cursor.
        """
        open_runs = [
            run
            for run in self.open_runs_of(record)
            if run.key.scheduled_for >= since and not self._is_newer(run, record)
        ]
        unstaged = [
            run
            for run in open_runs
            if run.is_unattempted or (include_retrying and run.state is not RunState.RUNNING)
        ]
        for run in unstaged:
            self.cancel(run, reason)
        stops_claims = reason is not Reason.SUPERSEDED
        stopping = [run for run in open_runs if stops_claims and run.is_unstarted_claim]
        version, to_plan = record.version, (*unstaged, *stopping)
        planned = {run.key.scheduled_for for run in to_plan if run.is_from_recurrence}
        pending = {each.number for each in record.pending}
        early = {run.key.scheduled_for for run in to_plan if run.version in pending}
        returning = {time for time in planned if recurs_at(version.recurrence, time)}
        planned_until = min([record.planned_until, *(time - RESOLUTION for time in returning)])
        after_cursor = [t for t in record.open_runs if planned_until < t <= record.planned_until]
        undecided = [time for time in after_cursor if recurs_at(version.recurrence, time)]
        removed = {run.key.scheduled_for for run in unstaged}
        if reason is Reason.PAUSED:
            # No recurrence returns these times. The resume restages them from `open_runs`.
            removed -= planned - returning - {record.awaited_run} - early
        # A retrying run ends here, and each run that has an attempt counts.
        attempted = {run.key.scheduled_for: run.cancelled_result for run in unstaged if run.attempt}
        return record._replace(
            planned_until=planned_until,
            dispatched=max(0, record.dispatched - len(undecided)),
            open_runs=tuple(time for time in record.open_runs if time not in removed),
        ).with_results(attempted)

    def _is_newer(self, run: LockedRun, record: ScheduleRecord) -> bool:
        """Return whether the change that unstages runs has moved this run to its new version."""
        version = self.moved_to_version.get(run.key)
        return version is not None and version.number > record.version.number
