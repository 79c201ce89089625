"""The explanation of a scheduled time, the preview of the next ones, and their views (pure)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from harebell.contract.ids import RunKey
from harebell.contract.message import quoted
from harebell.contract.types import duration_text, instant_text
from harebell.contract.views import ExplanationView, PreviewView
from harebell.contract.when import Recurring
from harebell.domain.calendars import CalendarRule, ShiftedTime, blackout_at
from harebell.domain.planner import StartDelays
from harebell.domain.preview import (
    blackout_notes,
    calendar_notes,
    describe_run,
    open_day_text,
    upcoming_runs,
)
from harebell.domain.reason_text import REASON_TEXT, SCHEDULE_STATE_TEXT, reason_text
from harebell.domain.recurrence import RESOLUTION, AfterCompletion, CalendarRecurrence, blackouts_of
from harebell.domain.retry import EXPIRED
from harebell.domain.run_states import RETENTION, Reason, RunState, ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.intake.queries.schedule_history import ScheduleHistory
from harebell.intake.queries.views import Row, attempt_view, run_view

MAX_COUNTED_TIMES: Final = 1_000  # scheduled times that `explain` counts towards `times`
MAX_NAMED_HOLDERS: Final = 10  # runs that an explanation names

EXCLUDED_BY_CALENDAR: Final = "excluded_by_calendar"  # the reason of an excluded time
OTHER_OPEN_DAY: Final = "other_open_day"  # the reason of a time on another day
HISTORY_REMOVED: Final = "history_removed"  # the reason of a time before the retention


class RemovedHistory(NamedTuple):
    """The time before which the retention has removed runs of a tenant, and its age."""

    until: datetime
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class OccupiedLabel:
    """The concurrency label for which a run waits, with the limit of that run.

    `holders` are running runs of the label, the earliest first, at most `MAX_NAMED_HOLDERS` plus 1.
    """

    name: str
    limit: int
    holders: tuple[RunKey, ...]

    @property
    def text(self) -> str:
        label = f"The concurrency label is {self.name} with the limit {self.limit}."
        if not self.holders:
            return f"{label} The query found no running run of the label."
        named = ", ".join(map(str, self.holders[:MAX_NAMED_HOLDERS]))
        others = " and others" if len(self.holders) > MAX_NAMED_HOLDERS else ""
        return f"{label} These running runs have its slots: {named}{others}."


class Verdict(StrEnum):
    """The closed set of results of an explanation."""

    RAN = "ran"  # the run succeeded
    RUNNING = "running"
    RETRYING = "retrying"  # the last attempt failed, and another attempt follows
    FAILED = "failed"  # the last attempt failed, and no attempt follows
    STOPPED = "stopped"  # a cancellation or a newer run ended the run after an attempt
    UNKNOWN_OUTCOME = "unknown_outcome"  # an attempt started, and its outcome is unknown
    WILL_RUN = "will_run"
    DID_NOT_RUN = "did_not_run"  # no attempt has called the target
    WILL_NOT_RUN = "will_not_run"
    NOT_PLANNED_YET = "not_planned_yet"  # the run was due, and no ticker has planned it
    NOT_DUE = "not_due"  # the recurrence does not contain the time
    BEFORE_CREATION = "before_creation"
    NO_RECORD = "no_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict about one scheduled time.

    `reason` is a run reason, an error code or the state of the schedule.
    `before` and `after` are the neighbours of a time that the recurrence does not contain.
    """

    at: datetime | None
    verdict: Verdict
    text: str
    reason: str | None = None
    window: VersionWindow | None = None
    notes: tuple[str, ...] = ()
    before: datetime | None = None
    after: datetime | None = None


def preview_view(history: ScheduleHistory, after: datetime, count: int) -> PreviewView:
    """Return the next `count` scheduled times, whether or not the schedule is active."""
    runs = upcoming_runs(
        history.windows_after(after), after=after, count=count, skipped_times=history.skipped_times
    )
    return PreviewView(
        id=history.id,
        key=history.key,
        state=history.state.value,
        paused_until=history.paused_until,
        instants=[each.to_view() for each in runs],
    )


def explanation_view(
    history: ScheduleHistory, explanation: Explanation, row: Row | None, *, attempts: Sequence[Row]
) -> ExplanationView:
    """Return the view of an explanation, with the run of `row` and its attempts."""
    window = explanation.window
    return ExplanationView(
        id=history.id,
        key=history.key,
        state=history.state.value,
        at=explanation.at,
        verdict=explanation.verdict.value,
        reason=explanation.reason,
        text=explanation.text,
        notes=list(explanation.notes),
        version=None if window is None else window.number,
        before=explanation.before,
        after=explanation.after,
        run=None if row is None else run_view(row),
        attempts=[attempt_view(each) for each in attempts],
    )


def explain(
    history: ScheduleHistory,
    at: datetime | None,
    row: Row | None,
    *,
    now: datetime,
    attempts: Sequence[Row] = (),
    removed: RemovedHistory | None = None,
    label: OccupiedLabel | None = None,
) -> Explanation:
    """Return why a run of the time `at` did or did not start.

    `row` is the run of that time, or the row of a range of skipped times that contains it.
    `attempts` are the completed attempts of that run in their order.
    `removed` is the history of the tenant that the retention has removed.
    `label` is the concurrency label for which the run of `row` waits.
    """
    if at is None:
        text = "The schedule has no scheduled time up to now."
        first = _first_after(history, now)
        return Explanation(at=None, verdict=Verdict.NOT_DUE, text=text, after=first)
    if row is not None:
        window = next((each for each in history.windows if each.number == row["version"]), None)
        verdict, text = _row_verdict(row, attempts, now=now)
        text = _sentences(text, None if label is None else label.text, _held_text(window, row))
        notes = () if window is None else tuple(_notes_of_row(window, at, row))
        return Explanation(
            at=at, verdict=verdict, text=text, reason=row["reason"], window=window, notes=notes
        )
    if removed is not None and at < removed.until and not _is_before_creation(history, at):
        text = (
            f"The history of this time was removed at the age of {duration_text(removed.age)}, "
            "whether or not a run had this time."
        )
        return Explanation(at=at, verdict=Verdict.NO_RECORD, reason=HISTORY_REMOVED, text=text)
    return _explain_without_row(history, at, now=now)


def _held_text(window: VersionWindow | None, row: Row) -> str | None:
    """Return the sentence about the calendar until whose end an executor holds back the run."""
    if window is None or row["reason"] != Reason.BLACKOUT or row["next_attempt_at"] is None:
        return None
    last = blackout_at(blackouts_of(window.policy), row["next_attempt_at"] - RESOLUTION)
    if last is None:
        return None
    return f"The calendar {last.name} ends {_next_attempt(row)}."


def _notes_of_row(window: VersionWindow, at: datetime, row: Row) -> Iterator[str]:
    """Yield the notes about calendars. The due time of a manual run contains no blackout."""
    yield from (each.text for each in calendar_notes(window, at))
    due_at = StartDelays.of(window.policy).due_time(RunKey(at, window.schedule_id))
    if row["due_at"] == due_at:
        yield from (each.text for each in blackout_notes(window, at))


def _is_before_creation(history: ScheduleHistory, at: datetime) -> bool:
    """Return whether a time is before the first version, which the retention may have removed."""
    is_complete = any(each.number == 1 for each in history.windows)
    return is_complete and history.window_at(at) is None


def _explain_without_row(history: ScheduleHistory, at: datetime, *, now: datetime) -> Explanation:
    window = history.window_at(at)
    if window is None:
        text = "The schedule did not exist at that time."
        first = _first_after(history, at)
        return Explanation(at=at, verdict=Verdict.BEFORE_CREATION, text=text, after=first)
    if isinstance(window.recurrence, AfterCompletion):
        return Explanation(
            at=at,
            verdict=Verdict.NOT_DUE,
            text="The end of each run sets the next scheduled time, and no run has this time.",
            window=window,
            before=history.awaited_run,
        )
    if not window.includes(at):
        return _explain_excluded(window, at, now=now) or _explain_not_due(window, at)
    is_past = at <= now
    return (
        _explain_past(history, window, at, now=now)
        if is_past
        else _explain_future(history, window, at)
    )


def _row_verdict(row: Row, attempts: Sequence[Row], *, now: datetime) -> tuple[Verdict, str]:
    """Return the verdict about a run and its text, from its row and its completed attempts."""
    state, attempt, reason = RunState(row["state"]), row["attempt"], reason_text(row["reason"])
    match state:
        case RunState.STAGED:
            late = " The run is late." if row["due_at"] < now else ""
            staged = f"The run is staged and due at {instant_text(row['due_at'])}.{late}"
            verdict, text = Verdict.WILL_RUN, reason or staged
        case RunState.RUNNING:
            verdict, text = Verdict.RUNNING, f"Attempt {attempt} is running."
        case RunState.RETRYING:
            next_text = (
                f"Attempt {attempt} failed, and the next attempt starts {_next_attempt(row)}."
            )
            text = _sentences(next_text, reason, _error_text(attempts), _probes_text(row))
            verdict = Verdict.RETRYING
        case RunState.SUCCEEDED:
            is_resolved = row["reason"] == Reason.MANUAL
            succeeded = f"The run succeeded at attempt {attempt}."
            resolved = "A person resolved the run as succeeded."
            text = _sentences(resolved if is_resolved else succeeded, _probes_text(row))
            verdict = Verdict.RAN
        case RunState.DEAD:
            dead = f"The run failed permanently at attempt {attempt} and has a dead letter."
            text = _sentences(dead, _error_text(attempts), _probes_text(row))
            verdict = Verdict.FAILED
        case RunState.UNRESOLVED:
            verdict = Verdict.UNKNOWN_OUTCOME
            text = f"{REASON_TEXT[Reason.UNKNOWN_OUTCOME]} A person must resolve the run."
        case RunState.CANCELLED | RunState.EXPIRED | RunState.SKIPPED:
            if any(each["error_code"] != EXPIRED for each in attempts):
                verdict, text = _ended_without_success(row, attempts)
            else:
                verdict = Verdict.DID_NOT_RUN
                text = (reason or f"The run is {state}.") + _range_text(row)
    return verdict, text


def _ended_without_success(row: Row, attempts: Sequence[Row]) -> tuple[Verdict, str]:
    """Return the verdict about a run that ended after an attempt, without a success or a death."""
    state, attempt = RunState(row["state"]), row["attempt"]
    if state is RunState.EXPIRED:
        text = f"No attempt succeeded within the time of `expires_after` (attempts: {attempt})."
        return Verdict.FAILED, _sentences(text, _error_text(attempts))
    if state is RunState.CANCELLED:
        text = f"The run was stopped at attempt {attempt}."
        return Verdict.STOPPED, _sentences(text, reason_text(row["reason"]))
    text = f"The outcome of attempt {attempt} is unknown."
    decision = "A person" if row["reason"] == Reason.MANUAL else "The policy `on_unknown`"
    return Verdict.UNKNOWN_OUTCOME, f"{text} {decision} ended the run without another attempt."


def _error_text(attempts: Sequence[Row]) -> str | None:
    """Return the sentence about the error of the last attempt that called the target."""
    failed = [each for each in attempts if each["error_code"] not in (None, EXPIRED)]
    if not failed:
        return None
    code, error = failed[-1]["error_code"], failed[-1]["error"]
    return f"The last error is {code}{'' if error is None else f' ({quoted(error)})'}."


def _sentences(*texts: str | None) -> str:
    return " ".join(text for text in texts if text is not None)


def _probes_text(row: Row) -> str | None:
    """Return the sentence about the attempts that did not count."""
    count = row.get("failed_probes") or 0
    if not count:
        return None
    one, many = "One attempt was a failed probe", f"{count} attempts were failed probes"
    attempts = one if count == 1 else many
    return f"{attempts} of a circuit breaker and did not count."


def _range_text(row: Row) -> str:
    if row["range_until"] is None or row["range_count"] in (None, 1):
        return ""
    first, last = instant_text(row["scheduled_for"]), instant_text(row["range_until"])
    return f" The reason applies to {row['range_count']} scheduled times from {first} to {last}."


def _next_attempt(row: Row) -> str:
    at = row["next_attempt_at"]
    return "at once" if at is None else f"at {instant_text(at)}"


def _explain_excluded(window: VersionWindow, at: datetime, *, now: datetime) -> Explanation | None:
    """Return the explanation of a time that a calendar excludes, or None for another time."""
    recurrence = window.recurrence
    if not isinstance(recurrence, CalendarRecurrence):
        return None
    if recurrence.is_on_other_day(at):
        return _explain_other_day(window, recurrence.rule, at, now=now)
    exclusion = recurrence.exclusion_at(at)
    if exclusion is None:
        return None
    pinned = {each.name: each.version for each in window.policy.pinned_calendars}
    calendar = exclusion.calendar
    text = f"Version {pinned[calendar]} of the calendar {calendar} excludes this time."
    if isinstance(exclusion, ShiftedTime):
        text = f"{text[:-1]}, and its run moves to {instant_text(exclusion.at)}."
    return Explanation(
        at=at,
        verdict=Verdict.DID_NOT_RUN if at <= now else Verdict.WILL_NOT_RUN,
        text=text,
        reason=EXCLUDED_BY_CALENDAR,
        window=window,
        before=window.last_time_until(at),
        after=window.next_after(at),
    )


def _explain_other_day(
    window: VersionWindow, rule: CalendarRule, at: datetime, *, now: datetime
) -> Explanation:
    assert rule.open_day is not None  # noqa: S101  # the day is not the wanted one
    return Explanation(
        at=at,
        verdict=Verdict.DID_NOT_RUN if at <= now else Verdict.WILL_NOT_RUN,
        text=f"The day is not {open_day_text(rule.open_day, rule.names)}.",
        reason=OTHER_OPEN_DAY,
        window=window,
        before=window.last_time_until(at),
        after=window.next_after(at),
    )


def _explain_not_due(window: VersionWindow, at: datetime) -> Explanation:
    return Explanation(
        at=at,
        verdict=Verdict.NOT_DUE,
        text=f"Version {window.number} is in force at that time and does not contain the time.",
        window=window,
        before=window.last_time_until(at),
        after=window.next_after(at),
    )


def _explain_future(history: ScheduleHistory, window: VersionWindow, at: datetime) -> Explanation:
    if at in history.skipped_times:
        return _will_not_run(window, at, Reason.MANUAL, text=REASON_TEXT[Reason.MANUAL])
    is_resumed_before = history.state is ScheduleState.PAUSED and (
        history.paused_until is not None and history.paused_until <= at
    )
    if history.state is not ScheduleState.ACTIVE and not is_resumed_before:
        return _will_not_run(window, at, history.state, text=_state_text(history))
    if not _is_within_times(history, window, at):
        text = "Earlier runs reach the limit `times` before this scheduled time."
        return _will_not_run(window, at, ScheduleState.COMPLETED, text=text)
    run = describe_run(window, at)
    return Explanation(
        at=at,
        verdict=Verdict.WILL_RUN,
        text=f"The run is planned and due at {instant_text(run.due_at)}.",
        window=window,
        notes=tuple(note.text for note in run.notes),
    )


def _will_not_run(
    window: VersionWindow, at: datetime, reason: Reason | ScheduleState, *, text: str
) -> Explanation:
    return Explanation(at=at, verdict=Verdict.WILL_NOT_RUN, text=text, reason=reason, window=window)


def _explain_past(
    history: ScheduleHistory, window: VersionWindow, at: datetime, *, now: datetime
) -> Explanation:
    verdict, reason = Verdict.NO_RECORD, None
    if now - at > RETENTION:
        text = f"The ledger has no row for this time, which is over {RETENTION.days} days past."
    elif at in history.skipped_times:
        verdict, reason = Verdict.DID_NOT_RUN, Reason.MANUAL.value
        text = REASON_TEXT[Reason.MANUAL]
    elif history.state is not ScheduleState.ACTIVE:
        verdict, reason = Verdict.DID_NOT_RUN, history.state.value
        text = _state_text(history)
    elif at > history.planned_until:
        verdict = Verdict.NOT_PLANNED_YET
        text = "The run was due, and no ticker has planned it yet."
    else:
        text = "The ledger has no row for this scheduled time."
    return Explanation(at=at, verdict=verdict, text=text, reason=reason, window=window)


def _state_text(history: ScheduleHistory) -> str:
    """Return the text of the state, with the note of its author or the error."""
    text = SCHEDULE_STATE_TEXT[history.state]
    if history.reason is None:
        return text
    return f"{text} The recorded reason is {quoted(history.reason)}."


def _is_within_times(history: ScheduleHistory, window: VersionWindow, at: datetime) -> bool:
    """Return whether `times` leaves a run for a time.

    Return True for a time after the next `MAX_COUNTED_TIMES` ones.
    """
    when = window.policy.when
    if not isinstance(when, Recurring) or when.times is None:
        return True
    counted = upcoming_runs(
        [window],
        after=history.planned_until,
        count=MAX_COUNTED_TIMES,
        skipped_times=history.skipped_times,
    )
    return len(counted) == MAX_COUNTED_TIMES or any(each.at == at for each in counted)


def _first_after(history: ScheduleHistory, after: datetime) -> datetime | None:
    runs = upcoming_runs(history.windows, after=after, count=1)
    return runs[0].at if runs else None
