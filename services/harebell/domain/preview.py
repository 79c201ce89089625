"""The next runs of a schedule with notes, for people.

A property test compares the runs with those of `planner.plan`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from harebell.contract.ids import RunKey
from harebell.contract.types import duration_text
from harebell.contract.views import UpcomingRunNote, UpcomingRunView
from harebell.contract.when import Every
from harebell.domain.cron.dst_notes import DstNote, MovedTime, RepeatedTime, dst_note
from harebell.domain.planner import due_time
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    AnyOfRecurrence,
    CronRecurrence,
    Recurrence,
    is_sequential,
    phase_of,
)
from harebell.domain.versions import VersionWindow

_LOCAL_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


class NoteKind(StrEnum):
    """The subjects of notes."""

    DST_GAP = "dst_gap"
    DST_OVERLAP = "dst_overlap"
    JITTER = "jitter"
    PHASE = "phase"
    SKIPPED = "skipped"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True)
class PreviewNote:
    """A remark about one upcoming run."""

    about: NoteKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingRun:
    """A scheduled time, in UTC and in the time zone of the schedule. `due_at` includes jitter."""

    at: datetime
    local: datetime
    due_at: datetime
    notes: tuple[PreviewNote, ...]

    @property
    def is_skipped(self) -> bool:
        return any(note.about is NoteKind.SKIPPED for note in self.notes)

    def to_view(self) -> UpcomingRunView:
        """Return the form that the service and the command line show."""
        return UpcomingRunView(
            at=self.at,
            local=self.local.isoformat(),
            due_at=self.due_at,
            notes=[UpcomingRunNote(about=note.about.value, text=note.text) for note in self.notes],
        )


def upcoming_runs(
    windows: Sequence[VersionWindow],
    *,
    after: datetime,
    count: int,
    skipped_times: Collection[datetime] = (),
) -> list[UpcomingRun]:
    """Return the next `count` scheduled times of consecutive versions, with skipped times.

    A version with the same anchor continues the count of the previous version.
    """
    runs: list[UpcomingRun] = []
    previous: VersionWindow | None = None
    for each in windows:
        window = each.continuing(previous)
        times = window.next_times(after, count - len(runs), skipped_times)
        previous = window.with_dispatched(times, skipped_times)
        runs += [describe_run(window, time, skipped_times) for time in times]
    return runs


def describe_run(
    window: VersionWindow, time: datetime, skipped_times: Collection[datetime] = ()
) -> UpcomingRun:
    """Return one scheduled time of a version with its notes."""
    return UpcomingRun(
        at=time,
        local=time.astimezone(window.timezone),
        due_at=due_time(window.policy, RunKey(time, window.schedule_id)),
        notes=tuple(_notes(window, time, skipped_times)),
    )


def _notes(
    window: VersionWindow, time: datetime, skipped_times: Collection[datetime]
) -> Iterator[PreviewNote]:
    if time in skipped_times:
        yield PreviewNote(NoteKind.SKIPPED, "A person skipped this time, so no run starts.")
    for each in _dst_notes(window.recurrence, time):
        yield _note_of_clock_change(each)
    yield from _phase_notes(window)
    jitter = window.policy.when.jitter
    if jitter is not None and jitter > timedelta(0):
        text = f"The jitter delays the start by at most {duration_text(jitter)}."
        yield PreviewNote(NoteKind.JITTER, text)
    if isinstance(window.recurrence, AfterCompletion):
        text = "The end of the previous run moves this time."
        yield PreviewNote(NoteKind.SEQUENTIAL, text)
    elif is_sequential(window.policy):
        text = "The run starts only if no earlier run has succeeded."
        yield PreviewNote(NoteKind.SEQUENTIAL, text)


def _phase_notes(window: VersionWindow) -> Iterator[PreviewNote]:
    when = window.policy.when
    if isinstance(when, Every) and when.phase == "spread":
        phase, every = phase_of(window.schedule_id, when.every), duration_text(when.every)
        text = (
            f"The phase is spread: the schedule id sets the offset {duration_text(phase)} "
            f"within each interval of {every}."
        )
        yield PreviewNote(NoteKind.PHASE, text)


def _dst_notes(recurrence: Recurrence, time: datetime) -> Iterator[DstNote]:
    if isinstance(recurrence, AnyOfRecurrence):
        for member in recurrence.members:
            if member.next_after(time - RESOLUTION) == time:
                yield from _dst_notes(member, time)
    elif isinstance(recurrence, CronRecurrence):
        note = dst_note(recurrence.cron, time)
        if note is not None:
            yield note


def _note_of_clock_change(note: DstNote) -> PreviewNote:
    match note:
        case MovedTime(local):
            text = f"The clocks skip {local:{_LOCAL_FORMAT}}, so the run moves to the next time."
            return PreviewNote(NoteKind.DST_GAP, text)
        case RepeatedTime(local, which, both):
            runs = "Both occasions have a run." if both else "Only this occasion has a run."
            text = f"The clocks show {local:{_LOCAL_FORMAT}} twice. This run is the {which}. {runs}"
            return PreviewNote(NoteKind.DST_OVERLAP, text)
