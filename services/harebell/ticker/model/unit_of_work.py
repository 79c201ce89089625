"""What a batch of changes works on: schedules and their open runs, as values. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.types import EARLIEST
from harebell.domain.planner import remaining_runs
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus


class ScheduleRecord(NamedTuple):
    """A schedule and where its planning stands; a tuple, since each step makes a changed one."""

    version: Version
    state: ScheduleState
    planned_until: datetime
    changed_at: datetime
    next_at: datetime | None = None
    dispatched: int = 0
    open_runs: tuple[datetime, ...] = ()
    reason: str | None = None
    awaited_run: datetime | None = None  # the run whose end decides what comes next
    consecutive_failures: int = 0  # consecutive runs
    paused_until: datetime | None = None
    pending: Version | None = None  # takes effect later
    skipped_times: tuple[datetime, ...] = ()  # instants that a person took out
    last_number: int = 0  # of its versions, also of those that never took effect
    to_restage: tuple[datetime, ...] = ()  # not stored: to be owed again, now that a pause is over

    @property
    def next_number(self) -> int:
        pending = 0 if self.pending is None else self.pending.number
        return max(self.last_number, self.version.number, pending) + 1

    @property
    def id(self) -> UUID:
        return self.version.schedule_id

    @property
    def next_time(self) -> datetime | None:
        """The next instant to plan by the version in force; none once `times` is used up."""
        left = remaining_runs(self.version.policy, self.dispatched)
        return None if left == 0 else self.version.recurrence.next_after(self.planned_until)

    @property
    def pending_at(self) -> datetime | None:
        return None if self.pending is None else self.pending.since

    def version_at(self, instant: datetime) -> Version:
        """The one whose timetable counts for an instant to come."""
        if self.pending is not None and instant >= self.pending.since:
            return self.pending
        return self.version

    def visible_state(self, at: datetime) -> ScheduleState:
        """As users see it: completed is only what has no instant to come.

        `state` is what is left to plan: completed as soon as the last run is handed over.
        """
        if self.state is ScheduleState.COMPLETED and any(run > at for run in self.open_runs):
            return ScheduleState.ACTIVE
        return self.state


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A row of the ledger that has not ended, locked."""

    key: RunKey
    state: RunState
    attempt: int
    seq: int
    due_at: datetime
    version: int
    lease_holder: str | None
    is_from_recurrence: bool  # towards `times`: it came from the timetable
    has_started: bool  # as far as its holder's last renewal tells
    stop_reason: str | None = None  # why it has been asked to stop
    is_replayed: bool = False  # a later series: replayed, or to be retried though it was held

    @property
    def is_unattempted(self) -> bool:
        """Staged and never attempted: it can be settled as if it had never been."""
        return self.state is RunState.STAGED and self.attempt == 0 and not self.is_replayed

    @property
    def is_unstarted_claim(self) -> bool:
        """Claimed for the first time and not started: asked to stop, it ends as if untouched."""
        return self.state is RunState.RUNNING and self.attempt == 1 and not self.has_started


@dataclass(frozen=True, slots=True)
class Ended:
    """A row of the ledger that has ended, or is held."""

    state: RunState
    finished_at: datetime


class ManualRunOrigin(StrEnum):
    """Why a run exists that no timetable owes now."""

    TRIGGER = "trigger"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class ManualRun:
    """A run beside the timetable. `overlap` is in place of its version's."""

    version: Version
    scheduled_for: datetime
    origin: ManualRunOrigin
    overlap: Overlap | None = None


@dataclass(slots=True)
class UnitOfWork:
    """Loaded under locks, changed by `core`, written back whole."""

    schedules: dict[UUID, ScheduleRecord] = field(default_factory=dict)
    open_runs: dict[RunKey, LockedRun] = field(default_factory=dict)
    new_versions: list[tuple[Version, VersionStatus]] = field(default_factory=list)
    versions_in_force: list[Version] = field(default_factory=list)  # what users are to see
    handovers: list[VersionHandover] = field(default_factory=list)
    changed_ids: set[UUID] = field(default_factory=set)
    cancelled_runs: dict[RunKey, Reason] = field(default_factory=dict)
    moved_to_version: dict[RunKey, Version] = field(default_factory=dict)  # take this version
    stop_requests: dict[RunKey, Reason | None] = field(default_factory=dict)  # None: go on after all
    manual_runs: list[ManualRun] = field(default_factory=list)
    dropped_manual_runs: list[tuple[ManualRun, Reason]] = field(default_factory=list)
    ended_runs: dict[RunKey, Ended] = field(default_factory=dict)  # rows that have ended
    version_statuses: dict[tuple[UUID, int], tuple[VersionStatus, str | None]] = field(
        default_factory=dict
    )
    resolved_runs: dict[RunKey, RunState] = field(default_factory=dict)  # held, as a person has it

    def update(self, entry: ScheduleRecord) -> ScheduleRecord:
        self.schedules[entry.id] = entry
        self.changed_ids.add(entry.id)
        return entry

    def open_runs_of(self, entry: ScheduleRecord) -> list[LockedRun]:
        keys = (RunKey(moment, entry.id) for moment in entry.open_runs)
        return [run for key in keys if (run := self.open_runs.get(key)) is not None]

    def cancel(self, run: LockedRun, reason: Reason) -> None:
        self.cancelled_runs[run.key] = reason
        self.moved_to_version.pop(run.key, None)
        del self.open_runs[run.key]

    def move_to_version(self, run: LockedRun, version: Version) -> None:
        """The run stays as it is, and does what the new version says."""
        self.moved_to_version[run.key] = version
        self.open_runs[run.key] = replace(run, version=version.number)

    def unstage(
        self,
        entry: ScheduleRecord,
        reason: Reason,
        *,
        begun: bool = False,
        since: datetime = EARLIEST,
    ) -> ScheduleRecord:
        """Cancel what has not been attempted (`begun`: and what waits for a retry).

        The cursor goes back before the earliest of them, and of those that executors hold already
        and may yet drop, so that they can be owed again; what is dispatched is reckoned to there.
        """
        open_runs = [
            run
            for run in self.open_runs_of(entry)
            if run.key.scheduled_for >= since and not self._is_newer(run, entry)
        ]
        withdrawn = [
            run
            for run in open_runs
            if run.is_unattempted or (begun and run.state is not RunState.RUNNING)
        ]
        for run in withdrawn:
            self.cancel(run, reason)
        asked_to_stop = reason is not Reason.SUPERSEDED
        doubtful = [run for run in open_runs if asked_to_stop and run.is_unstarted_claim]
        version, again = entry.version, (*withdrawn, *doubtful)
        owed = {run.key.scheduled_for for run in again if run.is_from_recurrence}
        ahead = {run.key.scheduled_for for run in again if run.version > version.number}
        back = {moment for moment in owed if version.includes(moment)}
        planned_until = min([entry.planned_until, *(moment - RESOLUTION for moment in back)])
        left_open = [m for m in entry.open_runs if planned_until < m <= entry.planned_until]
        undecided = [moment for moment in left_open if version.includes(moment)]
        gone = {run.key.scheduled_for for run in withdrawn}
        if reason is Reason.PAUSED:  # noted: no timetable brings them again
            gone -= owed - back - {entry.awaited_run} - ahead
        return entry._replace(
            planned_until=planned_until,
            dispatched=max(0, entry.dispatched - len(undecided)),
            open_runs=tuple(moment for moment in entry.open_runs if moment not in gone),
        )

    def _is_newer(self, run: LockedRun, entry: ScheduleRecord) -> bool:
        """Renewed by the very change that withdraws what its new version does not owe."""
        renewed = self.moved_to_version.get(run.key)
        return renewed is not None and renewed.number > entry.version.number

    def drop_manual_runs(self, entry: ScheduleRecord, reason: Reason) -> ScheduleRecord:
        """Extra runs of this very batch: no run of theirs has come to be, and none will."""
        mine = [each for each in self.manual_runs if each.version.schedule_id == entry.id]
        self.manual_runs = [each for each in self.manual_runs if each not in mine]
        self.dropped_manual_runs += [(extra, reason) for extra in mine]
        gone = {extra.scheduled_for for extra in mine}
        left = tuple(moment for moment in entry.open_runs if moment not in gone)
        return entry._replace(open_runs=left)

    def claimed_runs(self, entry: ScheduleRecord) -> list[LockedRun]:
        """Runs that an executor holds already."""
        return [run for run in self.open_runs_of(entry) if run.state is RunState.RUNNING]

    def request_stop(self, runs: list[LockedRun], reason: Reason | None) -> None:
        """None takes back what a pause asked for; what was asked for otherwise stands."""
        for run in runs:
            if run.stop_reason is None or run.stop_reason == Reason.PAUSED:
                self.stop_requests[run.key] = reason
                self.open_runs[run.key] = replace(run, stop=reason)
