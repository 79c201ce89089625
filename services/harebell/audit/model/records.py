"""The records of an audit: its window, the schedules and runs that it reads, and its findings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

from harebell.contract.downstream import (
    UNKNOWN_DOWNSTREAM,
    downstream_of,
    downstream_of_json,
)
from harebell.contract.errors import Rejected
from harebell.contract.json_codec import decode_trusted
from harebell.contract.schedule import Definition
from harebell.contract.types import EARLIEST
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow

LATE_AFTER: Final = timedelta(seconds=60)  # the default bound for late and stuck runs

_ACTIVE: Final = "active"
_RECURRENCE_ERRORS: Final = (Rejected, ArithmeticError, ValueError)
_SCHEDULE_COLUMNS: Final = (
    "id",
    "tenant",
    "key",
    "shown_version",
    "version",
    "planned_until",
    "dispatched",
    "next_at",
    "awaited_run",
    "pending_at",
    "executions",
    "failures",
    "last_run",
    "changed_at",
)

Row: TypeAlias = Mapping[str, Any]


class FindingKind(StrEnum):
    """The kinds of findings."""

    MISSING = "missing"  # the ticker decided about a required time, and no row records it
    UNEXPECTED = "unexpected"  # a run of the recurrence at a time that no version contains
    DUPLICATED = "duplicated"  # more than one success, or an attempt after a success
    LATE = "late"
    STUCK = "stuck"  # no service acted in time
    INVALID = "invalid"  # the columns of a row contradict each other
    INCONSISTENT = "inconsistent"  # the state does not follow from the attempts and the reason
    UNREADABLE = "unreadable"  # the audit cannot read the schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault. `at` is the scheduled time of its run, or None for a fault of the schedule."""

    kind: FindingKind
    tenant: str
    schedule_id: UUID
    key: str | None
    at: datetime | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The audited scheduled times: from `since` up to, without, `until`."""

    since: datetime
    until: datetime
    now: datetime
    late_after: timedelta = LATE_AFTER

    @property
    def late_before(self) -> datetime:
        """Return the time before which an open run must not be due."""
        return self.now - self.late_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A row of `attempts`."""

    replay_number: int
    number: int
    outcome: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of `runs` with its attempts in their order.

    `first_staged_at` is `staged_at` without the republications of the ticket.
    `target` is the target of this run alone, or None for the target of its version.
    """

    scheduled_for: datetime
    tenant: str
    version: int
    origin: str | None
    state: str
    reason: str | None
    outcome: str | None
    seq: int
    replay_number: int
    attempt: int
    due_at: datetime
    expires_at: datetime | None
    next_attempt_at: datetime | None
    lease_holder: str | None
    lease_until: datetime | None
    staged_at: datetime | None
    first_staged_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    range_until: datetime | None
    range_count: int | None
    failed_probes: int | None = None  # attempts that do not count for `max_attempts`
    target: str | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def expected_at(self) -> datetime:
        """Return the time at which the next attempt should start.

        The catch-up policy and a backfill stage a run after its due time.
        """
        due_at = self.next_attempt_at or self.due_at
        return max(due_at, self.first_staged_at or due_at)

    def reaches(self, time: datetime) -> bool:
        """Return whether the row is a range that ends at `time` or later."""
        return self.range_until is not None and self.range_until >= time

    @property
    def current_attempts(self) -> tuple[Attempt, ...]:
        """Return the attempts with the replay number of the run."""
        return tuple(each for each in self.attempts if each.replay_number == self.replay_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule with the windows of its versions, in the order of their effective times.

    `shown_version` is the version in `schedules`, and `version` is the one in `schedule_state`.
    """

    id: UUID
    tenant: str
    key: str | None
    shown_version: int
    version: int
    state: ScheduleState
    planned_until: datetime
    dispatched: int
    next_at: datetime | None
    awaited_run: datetime | None
    pending_at: datetime | None
    executions: int
    failures: int
    last_run: datetime | None
    changed_at: datetime
    windows: tuple[VersionWindow, ...]

    def window_of(self, number: int) -> VersionWindow | None:
        return next((window for window in self.windows if window.number == number), None)

    def definition_of(self, number: int) -> Definition | None:
        """Return the definition of a version, or None for a version that cannot be computed."""
        window = self.window_of(number)
        policy = None if window is None else window.policy
        return policy if isinstance(policy, Definition) else None

    def downstream_of(self, run: Run) -> str:
        """Return the downstream that a run calls."""
        if run.target is not None:
            return downstream_of_json(decode_trusted(run.target.encode()))
        definition = self.definition_of(run.version)
        return UNKNOWN_DOWNSTREAM if definition is None else downstream_of(definition.target)

    def version_at(self, time: datetime) -> VersionWindow | None:
        """Return the version in force at a time."""
        started = (each for each in self.windows if each.is_active and each.since <= time)
        return max(started, key=order_of_force, default=None)

    def finding(self, kind: FindingKind, text: str, at: datetime | None = None) -> Finding:
        """Return a finding about the schedule, or about its run of the time `at`."""
        return Finding(
            kind=kind, tenant=self.tenant, schedule_id=self.id, key=self.key, at=at, text=text
        )


def read_schedule(row: Row, versions: Sequence[Row]) -> Schedule | Finding:
    """Return the schedule of its rows, or the finding that its rows cannot be read."""
    if row["state"] is None:
        return _unreadable(row, "The schedule has no state row.")
    try:
        windows = without_overlaps(
            window for each in versions if (window := _version_window(row, each)) is not None
        )
        state = ScheduleState(row["state"])
    except _RECURRENCE_ERRORS as error:
        return _unreadable(row, f"The schedule cannot be computed, because of this error: {error}")
    columns = {name: row[name] for name in _SCHEDULE_COLUMNS}
    return Schedule(state=state, windows=windows, **columns)


def order_of_force(window: VersionWindow) -> tuple[datetime, int]:
    """Return the sort key of versions in the order in which they are in force.

    A version with a later effective time may have a lower number.
    """
    return window.since, window.number


def without_overlaps(windows: Iterable[VersionWindow]) -> tuple[VersionWindow, ...]:
    """Return the windows with the times about which each version alone has decided.

    A later version may take over a run of an earlier version and unstage the run.
    The later version then decides about the time of that run.
    """
    results: list[VersionWindow] = []
    last_planned: list[datetime] = []  # of the later active versions
    for window in sorted(windows, key=order_of_force, reverse=True):
        if window.is_active:
            planned_until = min([window.planned_until, *last_planned])
            last_planned.append(planned_until)
        else:
            planned_until = window.start
        # A copy computes its recurrence again, so an unchanged window is not copied.
        is_same = planned_until == window.planned_until
        results.append(window if is_same else replace(window, planned_until=planned_until))
    return tuple(reversed(results))


def _unreadable(row: Row, text: str) -> Finding:
    return Finding(
        kind=FindingKind.UNREADABLE,
        tenant=row["tenant"],
        schedule_id=row["id"],
        key=row["key"],
        at=None,
        text=text,
    )


def _version_window(row: Row, version: Row) -> VersionWindow | None:
    """Return the window of a version, or None for a failed version.

    The version in force has decided up to the planning cursor.
    An earlier version has decided up to the handover to the next version.
    """
    number, is_active = version["version"], version["status"] == _ACTIVE
    is_in_force = number == row["version"]
    planned_until = row["planned_until"] if is_in_force else version["planned_until"]
    try:
        window = VersionWindow(
            schedule_id=row["id"],
            policy=Definition.model_validate_json(version["definition"]),
            since=version["effective_at"],
            number=number,
            is_active=is_active,
            anchor=version["anchor_at"],
            planned_from=version["planned_from"],
            planned_until=planned_until or EARLIEST,
        )
        _ = window.recurrence  # an invalid recurrence raises here, within the try statement
        start = window.start
    except _RECURRENCE_ERRORS:
        if is_active:
            raise
        return None
    return window if planned_until is not None else replace(window, planned_until=start)
