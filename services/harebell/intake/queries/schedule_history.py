"""The history of a schedule: its state and the windows of its versions, from their rows (pure)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from harebell.contract.errors import Rejected
from harebell.contract.message import parse
from harebell.contract.schedule import Definition, SchedulingPolicy
from harebell.domain.preview import upcoming_runs
from harebell.domain.recurrence import AfterCompletion
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.intake.queries.views import Row

_STATUSES_IN_FORCE: Final = frozenset({"active", "pending"})
_ENDED_STATES: Final = frozenset(
    {ScheduleState.COMPLETED, ScheduleState.CANCELLED, ScheduleState.DELETED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleHistory:
    """A schedule and the versions that were, are or will be in force, in that order."""

    id: UUID
    key: str | None
    state: ScheduleState
    reason: str | None  # of the state
    planned_until: datetime
    paused_until: datetime | None
    awaited_run: datetime | None
    skipped_times: frozenset[datetime]
    windows: tuple[VersionWindow, ...]

    @classmethod
    def from_rows(cls, schedule: Row, versions: Sequence[Row]) -> "ScheduleHistory":
        """Return the history of a row of `IntakeStore.get_schedule` and its newest versions."""
        return cls(
            id=schedule["id"],
            key=schedule["key"],
            state=ScheduleState(schedule["state"]),
            reason=schedule["reason"],
            planned_until=schedule["planned_until"],
            paused_until=schedule["paused_until"],
            awaited_run=schedule["awaited_run"],
            skipped_times=frozenset(schedule["skipped_times"]),
            windows=_windows(schedule, versions),
        )

    @classmethod
    def from_policy(
        cls, policy: SchedulingPolicy, schedule_id: UUID, *, now: datetime
    ) -> "ScheduleHistory":
        """Return the history of a schedule that is not stored, as if a user put it now."""
        return cls(
            id=schedule_id,
            key=policy.key,
            state=ScheduleState.ACTIVE,
            reason=None,
            planned_until=now,
            paused_until=None,
            awaited_run=None,
            skipped_times=frozenset(),
            windows=(VersionWindow(schedule_id=schedule_id, policy=policy, since=now),),
        )

    def bounded_by(self, spend: Callable[[], None]) -> "ScheduleHistory":
        """Return the history that calls `spend`, which may raise, before each search."""
        windows = tuple(replace(each, spend=spend) for each in self.windows)
        return replace(self, windows=windows)

    def window_at(self, time: datetime) -> VersionWindow | None:
        """Return the version that decides about a time, or None before the first version."""
        started = [each for each in self.windows if each.since <= time or each.includes(time)]
        return started[-1] if started else None

    def last_time_until(self, now: datetime) -> datetime | None:
        """Return the last scheduled time up to `now` in any version.

        A recurrence from completion has its awaited run, or else the end of its planning.
        """
        for window in reversed(self.windows):
            if window.since <= now and isinstance(window.recurrence, AfterCompletion):
                return self.awaited_run or self.planned_until
            if (found := window.last_time_until(now)) is not None:
                return found
        return None

    def windows_after(self, time: datetime) -> list[VersionWindow]:
        """Return the versions that may have a run after `time`."""
        later = [each for each in self.windows if each.until is None or each.until > time]
        has_ended = self.state in _ENDED_STATES
        return [each for each in later if each.since > time] if has_ended else later


def next_planned_time(
    schedule: Row, versions: Sequence[Row], spend: Callable[[], None]
) -> datetime | None:
    """Return the next time to plan, in the version in force or in the pending version.

    Omit the times that a user skipped. Return None if a version cannot be computed, or not
    within the bound of `spend`.
    """
    try:
        history = ScheduleHistory.from_rows(schedule, versions).bounded_by(spend)
        cursor, skipped = history.planned_until, history.skipped_times
        windows = history.windows_after(cursor)
        runs = upcoming_runs(windows, after=cursor, count=len(skipped) + 1, skipped_times=skipped)
    except (Rejected, ArithmeticError, ValueError):
        return None
    return next((run.at for run in runs if not run.is_skipped), None)


def _windows(schedule: Row, versions: Sequence[Row]) -> tuple[VersionWindow, ...]:
    rows = sorted(
        (row for row in versions if row["status"] in _STATUSES_IN_FORCE),
        key=lambda row: (row["effective_at"], row["version"]),
    )
    windows = [_window(schedule["id"], row) for row in rows]
    for index, next_window in enumerate(windows[1:]):
        windows[index] = replace(windows[index], until=next_window.since)
    return tuple(
        replace(each, dispatched=schedule["dispatched"], planned_until=schedule["planned_until"])
        if each.number == schedule["version"]
        else each
        for each in windows
    )


def _window(schedule_id: UUID, row: Row) -> VersionWindow:
    return VersionWindow(
        schedule_id=schedule_id,
        policy=parse(Definition, row["definition"]),
        since=row["effective_at"],
        number=row["version"],
        anchor=row["anchor_at"],
    )
