"""What a schedule will do, for people: its next instants, each with what there is to say of it.

The instants are those that `occurrences.plan` will yield; a property test holds the two together.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.scalars import EARLIEST, duration_text, instant_text
from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.when import Every, Recurring
from harebell.kernel.cron.remarks import DstNote, MovedTime, RepeatedTime, dst_note
from harebell.kernel.occurrences import new_run, remaining_runs
from harebell.kernel.timetable import (
    RESOLUTION,
    AfterCompletion,
    AnyOfRecurrence,
    CronRecurrence,
    Once,
    Recurrence,
    is_sequential,
    recurrence_of,
)

_WALL: Final = "%Y-%m-%d %H:%M:%S"


class NoteKind(StrEnum):
    """What a note is about."""

    DST_GAP = "dst_gap"
    DST_OVERLAP = "dst_overlap"
    JITTER = "jitter"
    SKIPPED = "skipped"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True)
class PreviewNote:
    about: NoteKind
    words: str


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """An instant, in UTC and as the schedule's zone shows it. `due_at` has the jitter."""

    at: datetime
    local: datetime
    due_at: datetime
    notes: tuple[PreviewNote, ...]

    @property
    def is_skipped(self) -> bool:
        return any(note.about is NoteKind.SKIPPED for note in self.notes)

    def view(self) -> dict[str, Any]:
        """As users see it, from the service and from the command line alike."""
        return {
            "at": instant_text(self.at),
            "local": self.local.isoformat(),
            "due_at": instant_text(self.due_at),
            "notes": [{"about": note.about.value, "words": note.words} for note in self.notes],
        }


@dataclass(frozen=True)
class VersionWindow:
    """A version, and the stretch of time it is in force: up to `until`, which is the next one's."""

    schedule_id: UUID
    terms: SchedulingPolicy
    since: datetime
    until: datetime | None = None
    number: int = 1
    anchor: datetime | None = None  # relative times are reckoned from here; None: from `since`
    dispatched: int = 0  # runs that count towards `times`
    counted_to: datetime = EARLIEST  # instants up to here are among them, or will not run

    @cached_property
    def table(self) -> Recurrence:
        return recurrence_of(self.terms, self.schedule_id, self.reckoned_from)

    @property
    def reckoned_from(self) -> datetime:
        return self.anchor or self.since

    @property
    def zone(self) -> ZoneInfo:
        when = self.terms.when
        return ZoneInfo(when.timezone if isinstance(when, Recurring) else "UTC")

    def next_after(self, moment: datetime) -> datetime | None:
        """The first instant that this version owes after `moment`."""
        found = self.table.next_after(max(moment, self._beginning))
        ended = found is not None and self.until is not None and found >= self.until
        return None if ended else found

    def last_time_until(self, moment: datetime) -> datetime | None:
        """The last instant up to `moment`, by halving: there is no way to ask backward."""
        low, high = self._beginning, moment
        if isinstance(self.table, AfterCompletion) or not self._has_one(low, high):
            return None
        while high - low > RESOLUTION:
            middle = low + (high - low) // 2
            low, high = (middle, high) if self._has_one(middle, moment) else (low, middle)
        return self.next_after(low)

    def following(self, before: "VersionWindow | None") -> "VersionWindow":
        if before is None or before.reckoned_from != self.reckoned_from:
            return self
        return replace(self, dispatched=max(before.dispatched, self.dispatched))

    def having_run(
        self, instants: Sequence[datetime], skips: Collection[datetime]
    ) -> "VersionWindow":
        counted = sum(each > self.counted_to and each not in skips for each in instants)
        return replace(self, dispatched=self.dispatched + counted)

    def instants(
        self, after: datetime, count: int, skips: Collection[datetime] = ()
    ) -> list[datetime]:
        """The next `count` instants, skipped ones among them; `times` counts only the others."""
        return list(islice(_instants(self, after, skips), count))

    def includes(self, instant: datetime) -> bool:
        return self.next_after(instant - RESOLUTION) == instant

    def _has_one(self, after: datetime, until: datetime) -> bool:
        found = self.next_after(after)
        return found is not None and found <= until

    @property
    def _beginning(self) -> datetime:
        """An instant of a one-shot may lie before its acceptance."""
        at = self.table.at if isinstance(self.table, Once) else self.since
        return min(at, self.since) - RESOLUTION


def upcoming_runs(
    editions: Sequence[VersionWindow],
    *,
    after: datetime,
    count: int,
    skips: Collection[datetime] = (),
) -> list[UpcomingRun]:
    """The next `count` instants of editions that follow each other, skipped ones among them.

    Of the same times, the one goes on counting where the one before it ends.
    """
    found: list[UpcomingRun] = []
    before: VersionWindow | None = None
    for edition in editions:
        following = edition.following(before)
        mine = following.instants(after, count - len(found), skips)
        before = following.having_run(mine, skips)
        found += [describe_run(following, instant, skips) for instant in mine]
    return found


def _instants(
    edition: VersionWindow, after: datetime, skips: Collection[datetime]
) -> Iterator[datetime]:
    left = remaining_runs(edition.terms, edition.dispatched)
    instant = edition.next_after(after)
    while instant is not None and (left != 0 or instant <= edition.counted_to):
        if left is not None and instant > edition.counted_to and instant not in skips:
            left -= 1
        yield instant
        instant = edition.next_after(_behind(edition, instant))


def _behind(edition: VersionWindow, instant: datetime) -> datetime:
    """From completion: as if the run took no time."""
    when = edition.terms.when
    if isinstance(when, Every) and isinstance(edition.table, AfterCompletion):
        return instant + when.every - RESOLUTION
    return instant


def describe_run(
    edition: VersionWindow, instant: datetime, skips: Collection[datetime] = ()
) -> UpcomingRun:
    terms = edition.terms
    run = new_run(terms, edition.schedule_id, instant)
    notes = tuple(_notes(edition, instant, skips))
    return UpcomingRun(instant, instant.astimezone(edition.zone), run.due_at, notes)


def _notes(
    edition: VersionWindow, instant: datetime, skips: Collection[datetime]
) -> Iterator[PreviewNote]:
    terms = edition.terms
    if instant in skips:
        yield PreviewNote(NoteKind.SKIPPED, "taken out by a person: there will be no run")
    for each in _remarks(edition.table, instant):
        yield _clock_note(each)
    if terms.when.jitter is not None and terms.when.jitter > timedelta(0):
        yield PreviewNote(NoteKind.JITTER, f"starts up to {duration_text(terms.when.jitter)} later")
    if isinstance(edition.table, AfterCompletion):
        yield PreviewNote(NoteKind.SEQUENTIAL, "moves with the end of the run before")
    elif is_sequential(terms):
        yield PreviewNote(NoteKind.SEQUENTIAL, "only if no run before it has succeeded")


def _remarks(table: Recurrence, instant: datetime) -> Iterator[DstNote]:
    if isinstance(table, AnyOfRecurrence):
        for member in table.members:
            if member.next_after(instant - RESOLUTION) == instant:
                yield from _remarks(member, instant)
    elif isinstance(table, CronRecurrence) and (found := dst_note(table.cron, instant)) is not None:
        yield found


def _clock_note(found: DstNote) -> PreviewNote:
    match found:
        case MovedTime(wall):
            return PreviewNote(NoteKind.DST_GAP, f"moved, as the clocks skip {wall:{_WALL}}")
        case RepeatedTime(wall, which, both):
            also = "; it runs both times" if both else ""
            words = f"the clocks show {wall:{_WALL}} twice: this is the {which}{also}"
            return PreviewNote(NoteKind.DST_OVERLAP, words)
