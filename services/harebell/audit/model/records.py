"""What an audit may find, and what it tells of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from harebell.contract.schedule import Definition
from harebell.domain.recurrence import RESOLUTION, AfterCompletion, Recurrence
from harebell.domain.run_states import ScheduleState


class FindingKind(StrEnum):
    MISSING = "missing"  # an instant was owed and decided, and nothing is on record of it
    UNEXPECTED = "unexpected"  # a run of the timetable at an instant that it never had
    DUPLICATED = "duplicated"  # a run that succeeded more than once, or went on after it had
    LATE = "late"  # it began later than it may
    STUCK = "stuck"  # it ought to have gone on by now
    INVALID = "invalid"  # columns that contradict each other
    INCONSISTENT = "inconsistent"  # its state is not the one that its record leads to
    UNREADABLE = "unreadable"  # it could not be audited


@dataclass(frozen=True, slots=True)
class Finding:
    """`at`: the instant of the run; None: it is about the schedule."""

    kind: FindingKind
    tenant: str
    schedule_id: UUID
    key: str | None
    at: datetime | None
    text: str


LATE_AFTER: Final = timedelta(seconds=60)  # unless told otherwise


@dataclass(frozen=True, slots=True)
class Window:
    """Instants from `since` up to, but without, `until`; what is open is judged by `now`."""

    since: datetime
    until: datetime
    now: datetime
    late_after: timedelta = LATE_AFTER

    @property
    def late_before(self) -> datetime:
        """What was due before this is late or stuck."""
        return self.now - self.late_after


@dataclass(frozen=True, slots=True)
class Span:
    """A version, and the instants that it decided: (after, to]. None, if it never was in force."""

    number: int
    definition: Definition
    table: Recurrence
    since: datetime  # in force
    after: datetime
    to: datetime
    commenced: bool = True

    def decided(self, window: Window) -> Iterator[datetime]:
        """Its instants within the window. What follows the end of a run is known only then."""
        if isinstance(self.table, AfterCompletion):
            return
        instant = self.table.next_after(max(self.after, window.since - RESOLUTION))
        while instant is not None and instant <= self.to and instant < window.until:
            yield instant
            instant = self.table.next_after(instant)

    def has(self, instant: datetime) -> bool:
        """Whether it is one of its timetable's, whoever is to decide it."""
        return self.table.next_after(instant - RESOLUTION) == instant

    def owes(self, instant: datetime) -> bool:
        return self.after < instant and self.has(instant)


def without_overlaps(spans: Iterable[Span]) -> tuple[Span, ...]:
    """A later version may take over a run and withdraw it: then it is the earlier one's no more."""
    cut: list[Span] = []
    for span in sorted(spans, key=lambda each: each.number, reverse=True):
        if not span.commenced:
            cut.append(replace(span, to=span.after))
            continue
        later = (each.to for each in cut if each.commenced)
        cut.append(replace(span, to=min([span.to, *later])))
    return tuple(reversed(cut))


@dataclass(frozen=True, slots=True)
class Attempt:
    replay_number: int
    number: int
    outcome: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `runs`, its columns as they are, with its attempts in order."""

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
    started_at: datetime | None
    finished_at: datetime | None
    range_until: datetime | None
    range_count: int | None
    attempts: tuple[Attempt, ...] = ()

    def reaches(self, at: datetime) -> bool:
        """Whether it stands for instants from then on."""
        return self.range_until is not None and self.range_until >= at

    @property
    def current_attempts(self) -> tuple[Attempt, ...]:
        """Of the series that it is in; an earlier one is over."""
        return tuple(each for each in self.attempts if each.replay_number == self.replay_number)


@dataclass(frozen=True, slots=True)
class Schedule:
    """`shown`: the version that users are shown. `spans`: in the order of their versions."""

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
    windows: tuple[Span, ...]

    def window_of(self, number: int) -> Span | None:
        return next((span for span in self.windows if span.number == number), None)

    def version_at(self, at: datetime) -> Span | None:
        begun = (span for span in self.windows if span.commenced and span.since <= at)
        return max(begun, key=lambda span: span.number, default=None)

    def finding(self, kind: FindingKind, words: str, at: datetime | None = None) -> Finding:
        return Finding(kind, self.tenant, self.id, self.key, at, words)
