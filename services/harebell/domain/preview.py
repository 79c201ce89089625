"""What a schedule will do, for people: its next instants, each with what there is to say of it.

The instants are those that `occurrences.plan` will yield; a property test holds the two together.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from harebell.contract.ids import RunKey
from harebell.contract.types import duration_text, instant_text
from harebell.domain.cron.dst_notes import DstNote, MovedTime, RepeatedTime, dst_note
from harebell.domain.planner import due_time
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    AnyOfRecurrence,
    CronRecurrence,
    Recurrence,
    is_sequential,
)
from harebell.domain.versions import VersionWindow

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
            "notes": [{"about": note.about.value, "text": note.words} for note in self.notes],
        }


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


def describe_run(
    edition: VersionWindow, instant: datetime, skips: Collection[datetime] = ()
) -> UpcomingRun:
    terms = edition.terms
    due_at = due_time(terms, RunKey(instant, edition.schedule_id))
    notes = tuple(_notes(edition, instant, skips))
    return UpcomingRun(instant, instant.astimezone(edition.zone), due_at, notes)


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
