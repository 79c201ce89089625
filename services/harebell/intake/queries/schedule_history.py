"""A schedule as its rows tell it: how it stands, and which version is in force when. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from harebell.contract.message import parse
from harebell.contract.schedule import Definition, SchedulingPolicy
from harebell.domain.recurrence import AfterCompletion
from harebell.domain.run_states import ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.intake.queries.views import Row

IN_FORCE: frozenset[str] = frozenset({"active", "pending"})


@dataclass(frozen=True, slots=True)
class ScheduleHistory:
    """`editions` are the versions that were, are or will be in force, oldest first."""

    id: UUID
    key: str | None
    state: ScheduleState
    note: str | None
    planned_until: datetime
    paused_until: datetime | None
    awaiting: datetime | None
    skips: frozenset[datetime]
    windows: tuple[VersionWindow, ...]

    @classmethod
    def of(cls, schedule: Row, versions: Sequence[Row]) -> "ScheduleHistory":
        """`schedule` is a row of the store's; `versions` are the newest of its rows."""
        return cls(
            id=schedule["id"],
            key=schedule["key"],
            state=ScheduleState(schedule["state"]),
            note=schedule["reason"],
            planned_until=schedule["planned_until"],
            paused_until=schedule["paused_until"],
            awaiting=schedule["awaited_run"],
            skips=frozenset(schedule["skipped_times"]),
            windows=_editions(schedule, versions),
        )

    @classmethod
    def of_terms(
        cls, terms: SchedulingPolicy, schedule_id: UUID, *, now: datetime
    ) -> "ScheduleHistory":
        """Of a schedule that is not stored yet, as if it were put now."""
        return cls(
            id=schedule_id,
            key=terms.key,
            state=ScheduleState.ACTIVE,
            note=None,
            planned_until=now,
            paused_until=None,
            awaiting=None,
            skips=frozenset(),
            windows=(VersionWindow(schedule_id=schedule_id, policy=terms, since=now),),
        )

    def in_force(self, at: datetime) -> VersionWindow | None:
        """The version whose timetable counts for an instant; None before the first."""
        begun = [each for each in self.windows if each.since <= at or each.includes(at)]
        return begun[-1] if begun else None

    def last_until(self, now: datetime) -> datetime | None:
        """The last instant up to now of any version; of one that is awaited, that."""
        for edition in reversed(self.windows):
            if edition.since <= now and isinstance(edition.recurrence, AfterCompletion):
                return self.awaiting or self.planned_until
            if (found := edition.last_time_until(now)) is not None:
                return found
        return None

    def editions_after(self, moment: datetime) -> list[VersionWindow]:
        """Those that may yet owe something behind it."""
        left = [each for each in self.windows if each.until is None or each.until > moment]
        is_over = self.state in (ScheduleState.COMPLETED, ScheduleState.CANCELLED)
        return [each for each in left if each.since > moment] if is_over else left


def _editions(schedule: Row, versions: Sequence[Row]) -> tuple[VersionWindow, ...]:
    rows = sorted(
        (row for row in versions if row["status"] in IN_FORCE), key=lambda row: row["version"]
    )
    editions = [_edition(schedule["id"], row) for row in rows]
    for place, following in enumerate(editions[1:]):
        editions[place] = replace(editions[place], until=following.since)
    return tuple(
        replace(each, dispatched=schedule["dispatched"], planned_until=schedule["planned_until"])
        if each.number == schedule["version"]
        else each
        for each in editions
    )


def _edition(schedule_id: UUID, row: Row) -> VersionWindow:
    definition = parse(Definition, row["definition"])
    return VersionWindow(
        schedule_id=schedule_id,
        policy=definition,
        since=row["effective_at"],
        number=row["version"],
        anchor=row["anchor_at"],
    )
