"""The next runs of a schedule with notes, for people.

A property test compares the runs with those of `planner.plan`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from harebell.contract.ids import RunKey
from harebell.contract.types import duration_text, instant_text
from harebell.contract.views import UpcomingRunNote, UpcomingRunView
from harebell.contract.when import Every
from harebell.domain.cron import Cron
from harebell.domain.cron.dst_notes import DstNote, MovedTime, RepeatedTime, dst_note
from harebell.domain.cron.parser import open_steps
from harebell.domain.planner import StartDelays
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    AnyOfRecurrence,
    CalendarRecurrence,
    CronRecurrence,
    Recurrence,
    is_sequential,
    phase_of,
    recurs_at,
)
from harebell.domain.versions import VersionWindow

_MANY: Final = 3  # names, which commas separate
_LOCAL_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


class NoteKind(StrEnum):
    """The subjects of notes."""

    DST_GAP = "dst_gap"
    DST_OVERLAP = "dst_overlap"
    JITTER = "jitter"
    PHASE = "phase"
    SKIPPED = "skipped"
    SEQUENTIAL = "sequential"
    STEP = "step"
    DAYS = "days"
    CALENDAR = "calendar"
    BLACKOUT = "blackout"


@dataclass(frozen=True, slots=True)
class PreviewNote:
    """A remark about one upcoming run."""

    about: NoteKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingRun:
    """A scheduled time, in UTC and in the time zone of the schedule.

    `due_at` includes the jitter and the blackouts.
    """

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
        starts = [max(after, window.start), *times]
        runs += [
            _with_excluded(describe_run(window, time, skipped_times), window, since=start)
            for start, time in zip(starts, times, strict=False)
        ]
    return runs


def _with_excluded(run: UpcomingRun, window: VersionWindow, *, since: datetime) -> UpcomingRun:
    """Return the run with a note about a time between `since` and the run that is excluded."""
    recurrence = window.recurrence
    if not isinstance(recurrence, CalendarRecurrence):
        return run
    excluded = recurrence.first_excluded(since, run.at)
    if excluded is None or recurrence.rule.open_day is not None:
        return run
    at, calendar = excluded
    text = f"The calendar {calendar} excludes {instant_text(at)}, so this is the next run."
    return replace(run, notes=(*run.notes, PreviewNote(NoteKind.CALENDAR, text)))


def calendar_notes(window: VersionWindow, time: datetime) -> Iterator[PreviewNote]:
    """Yield the open day of `time`, and each excluded time that a calendar moves to `time`."""
    if isinstance(window.recurrence, CalendarRecurrence):
        rule = window.recurrence.rule
        if rule.open_day is not None:
            text = f"The day is {open_day_text(rule.open_day, rule.names)}."
            yield PreviewNote(NoteKind.CALENDAR, text)
        for at, calendar in window.recurrence.times_moved_to(time):
            text = (
                f"The calendar {calendar} excludes {instant_text(at)}, and its run moves to "
                "this time."
            )
            yield PreviewNote(NoteKind.CALENDAR, text)


def blackout_notes(window: VersionWindow, time: datetime) -> Iterator[PreviewNote]:
    """Yield the calendar that holds back the start of the run of `time`, with its end."""
    delays, key = StartDelays.of(window.policy), RunKey(time, window.schedule_id)
    calendar = delays.blackout_of(key)
    if calendar is not None:
        end = instant_text(delays.due_time(key))
        text = f"The blackout by the calendar {calendar} holds back the start until {end}."
        yield PreviewNote(NoteKind.BLACKOUT, text)


def open_day_text(number: int, calendars: Sequence[str]) -> str:
    """Return the words for an open day of a month and the calendars that decide it."""
    count = abs(number)
    position = f"open day {count}" if number > 0 else f"open day {count} from the end"
    names = " and ".join(calendars) if len(calendars) < _MANY else ", ".join(calendars)
    return f"{position} of its month by {names}"


def describe_run(
    window: VersionWindow, time: datetime, skipped_times: Collection[datetime] = ()
) -> UpcomingRun:
    """Return one scheduled time of a version with its notes."""
    return UpcomingRun(
        at=time,
        local=time.astimezone(window.timezone),
        due_at=StartDelays.of(window.policy).due_time(RunKey(time, window.schedule_id)),
        notes=tuple(_notes(window, time, skipped_times)),
    )


def _notes(
    window: VersionWindow, time: datetime, skipped_times: Collection[datetime]
) -> Iterator[PreviewNote]:
    if time in skipped_times:
        yield PreviewNote(NoteKind.SKIPPED, "A person skipped this time, so no run starts.")
    yield from calendar_notes(window, time)
    for each in _dst_notes(window.recurrence, time):
        yield _note_of_clock_change(each)
    yield from _step_notes(window.recurrence, time)
    yield from _phase_notes(window)
    jitter = window.policy.when.jitter
    if jitter is not None and jitter > timedelta(0):
        text = f"The jitter delays the start by at most {duration_text(jitter)}."
        yield PreviewNote(NoteKind.JITTER, text)
    yield from blackout_notes(window, time)
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


def _step_notes(recurrence: Recurrence, time: datetime) -> Iterator[PreviewNote]:
    for cron in _crons_at(recurrence, time):
        for step in open_steps(cron.expression):
            text = f"The part {step.written} of the {step.field} means {step.meaning}."
            yield PreviewNote(NoteKind.STEP, text)
        if cron.differs_in_debian:
            text = (
                "A date needs to match one day field only. Debian's cron requires both, "
                "as `day_match: both` does."
            )
            yield PreviewNote(NoteKind.DAYS, text)


def _dst_notes(recurrence: Recurrence, time: datetime) -> Iterator[DstNote]:
    if isinstance(recurrence, CalendarRecurrence) and not recurs_at(recurrence.base, time):
        return
    for cron in _crons_at(recurrence, time):
        note = dst_note(cron, time)
        if note is not None:
            yield note


def _crons_at(recurrence: Recurrence, time: datetime) -> Iterator[Cron]:
    """Yield each cron expression of the recurrence that has the scheduled time `time`."""
    if isinstance(recurrence, CalendarRecurrence):
        yield from _crons_at(recurrence.base, time)
    elif isinstance(recurrence, AnyOfRecurrence):
        for member in recurrence.members:
            if member.next_after(time - RESOLUTION) == time:
                yield from _crons_at(member, time)
    elif isinstance(recurrence, CronRecurrence):
        yield recurrence.cron


def _note_of_clock_change(note: DstNote) -> PreviewNote:
    match note:
        case MovedTime(local):
            text = f"The clocks skip {local:{_LOCAL_FORMAT}}, so the run moves to the next time."
            return PreviewNote(NoteKind.DST_GAP, text)
        case RepeatedTime(local, which, both):
            runs = "Both occasions have a run." if both else "Only this occasion has a run."
            text = f"The clocks show {local:{_LOCAL_FORMAT}} twice. This run is the {which}. {runs}"
            return PreviewNote(NoteKind.DST_OVERLAP, text)
