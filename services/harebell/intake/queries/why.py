"""Previews and whys as users see them. Fields may only be added."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from harebell.contract.types import instant_text
from harebell.domain.preview import describe_run, upcoming_runs
from harebell.domain.reason_text import REASON_TEXT, SCHEDULE_STATE_TEXT, reason_text
from harebell.domain.recurrence import AfterCompletion
from harebell.domain.run_states import RETENTION, Reason, RunState, ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.intake.queries.schedule_history import ScheduleHistory
from harebell.intake.queries.views import Row, View, attempt_view, run_view


class Verdict(StrEnum):
    """The closed list of what there is to say of an instant."""

    RAN = "ran"  # it has begun, whatever came of it
    WILL_RUN = "will_run"
    DID_NOT_RUN = "did_not_run"
    WILL_NOT_RUN = "will_not_run"
    NOT_PLANNED_YET = "not_planned_yet"  # it was due, and no ticker has come to it
    NOT_DUE = "not_due"  # the timetable has no such instant
    BEFORE_CREATION = "before_creation"  # the schedule did not exist
    NO_RECORD = "no_record"


@dataclass(frozen=True, slots=True)
class Explanation:
    """`code` is a reason of the ledger, or the state of the schedule."""

    at: datetime | None
    verdict: Verdict
    words: str
    code: str | None = None
    edition: VersionWindow | None = None
    notes: tuple[str, ...] = ()
    before: datetime | None = None
    behind: datetime | None = None


def preview_view(story: ScheduleHistory, after: datetime, count: int) -> View:
    """`state` says whether those instants will run as things stand."""
    found = upcoming_runs(story.editions_after(after), after=after, count=count, skipped_times=story.skips)
    return {
        **_named(story),
        "paused_until": _text(story.paused_until),
        "instants": [each.to_view().model_dump(mode="json") for each in found],
    }


def explanation_view(
    story: ScheduleHistory, why: Explanation, row: Row | None, attempts: Sequence[Row]
) -> View:
    return {
        **_named(story),
        "at": _text(why.at),
        "verdict": why.verdict,
        "reason": why.code,
        "text": why.words,
        "notes": list(why.notes),
        "version": None if why.edition is None else why.edition.number,
        "before": _text(why.before),
        "after": _text(why.behind),
        "run": None if row is None else run_view(row),
        "attempts": [attempt_view(each) for each in attempts],
    }


def _named(story: ScheduleHistory) -> View:
    return {"id": str(story.id), "key": story.key, "state": story.state}


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else instant_text(moment)


MAX_COUNTED: Final = 1_000  # instants up to the one asked about, where `times` bounds them


def explain(
    story: ScheduleHistory, at: datetime | None, row: Row | None, *, now: datetime
) -> Explanation:
    """`row` is the run of that instant, or the one that stands for a range with it."""
    if at is None:
        return Explanation(
            None, Verdict.NOT_DUE, "no instant has come yet", behind=_first(story, now)
        )
    if row is not None:
        return _recorded(story, at, row, now)
    edition = story.in_force(at)
    if edition is None:
        return Explanation(
            at, Verdict.BEFORE_CREATION, "the schedule did not exist yet", behind=_first(story, at)
        )
    if isinstance(edition.recurrence, AfterCompletion):
        text = "each run comes so long after the end of the one before; none has this instant"
        return Explanation(at, Verdict.NOT_DUE, text, edition=edition, before=story.awaiting)
    if not edition.includes(at):
        return _not_due(edition, at)
    return _to_come(story, edition, at) if at > now else _past(story, edition, at, now)


def _recorded(story: ScheduleHistory, at: datetime, row: Row, now: datetime) -> Explanation:
    state, reason = RunState(row["state"]), row["reason"]
    edition = next((each for each in story.windows if each.number == row["version"]), None)
    match state:
        case RunState.STAGED:
            late = "; it is late" if row["due_at"] < now else ""
            text = (
                reason_text(reason)
                or f"it is handed over, due at {instant_text(row['due_at'])}{late}"
            )
            return Explanation(at, Verdict.WILL_RUN, text, reason, edition)
        case RunState.CANCELLED | RunState.EXPIRED | RunState.SKIPPED:
            text = reason_text(reason) or f"it is {state}"
            return Explanation(at, Verdict.DID_NOT_RUN, text + _range(row), reason, edition)
        case RunState.DEAD:
            text = f"it failed for good at attempt {row['attempt']} and is a dead letter"
        case RunState.UNRESOLVED:
            text = f"{REASON_TEXT[Reason.UNKNOWN_OUTCOME]}: a person must resolve it"
        case RunState.SUCCEEDED:
            text = f"it succeeded at attempt {row['attempt']}"
        case RunState.RETRYING:
            text = f"attempt {row['attempt']} failed; the next is at {_next_attempt(row)}"
        case RunState.RUNNING:
            text = f"attempt {row['attempt']} is under way"
    return Explanation(at, Verdict.RAN, text, reason, edition)


def _range(row: Row) -> str:
    if row["range_until"] is None or row["range_count"] in (None, 1):
        return ""
    first, last = instant_text(row["scheduled_for"]), instant_text(row["range_until"])
    return f"; so with {row['range_count']} instants from {first} to {last}"


def _not_due(edition: VersionWindow, at: datetime) -> Explanation:
    return Explanation(
        at,
        Verdict.NOT_DUE,
        f"version {edition.number}, in force then, has no such instant",
        edition=edition,
        before=edition.last_time_until(at),
        behind=edition.next_after(at),
    )


def _to_come(story: ScheduleHistory, edition: VersionWindow, at: datetime) -> Explanation:
    if at in story.skips:
        return _will_not(at, edition, Reason.MANUAL, REASON_TEXT[Reason.MANUAL])
    paused_past = story.state is ScheduleState.PAUSED and (
        story.paused_until is not None and story.paused_until <= at
    )
    if story.state is not ScheduleState.ACTIVE and not paused_past:
        return _will_not(at, edition, story.state, _standing(story))
    if not _within_times(story, edition, at):
        text = "the runs before it use up `times`"
        return _will_not(at, edition, ScheduleState.COMPLETED, text)
    found = describe_run(edition, at)
    notes = tuple(note.text for note in found.notes)
    text = f"it is planned, due at {instant_text(found.due_at)}"
    return Explanation(at, Verdict.WILL_RUN, text, edition=edition, notes=notes)


def _will_not(
    at: datetime, edition: VersionWindow, code: Reason | ScheduleState, text: str
) -> Explanation:
    return Explanation(at, Verdict.WILL_NOT_RUN, text, code, edition)


def _past(
    story: ScheduleHistory, edition: VersionWindow, at: datetime, now: datetime
) -> Explanation:
    if now - at > RETENTION:
        text = f"older than {RETENTION.days} days, which is as far as the record goes"
        return Explanation(at, Verdict.NO_RECORD, text, edition=edition)
    if at in story.skips:
        return Explanation(
            at, Verdict.DID_NOT_RUN, REASON_TEXT[Reason.MANUAL], Reason.MANUAL, edition
        )
    if story.state is not ScheduleState.ACTIVE:
        return Explanation(at, Verdict.DID_NOT_RUN, _standing(story), story.state, edition)
    if at > story.planned_until:
        text = "it was due, and no ticker has come to it yet"
        return Explanation(at, Verdict.NOT_PLANNED_YET, text, edition=edition)
    return Explanation(at, Verdict.NO_RECORD, "nothing is on record of it", edition=edition)


def _standing(story: ScheduleHistory) -> str:
    return SCHEDULE_STATE_TEXT[story.state] + (f" ({story.note})" if story.note else "")


def _within_times(story: ScheduleHistory, edition: VersionWindow, at: datetime) -> bool:
    """Whether `times` leaves a run for it; further away than we count, we say yes."""
    if getattr(edition.policy.when, "times", None) is None:
        return True
    counted = upcoming_runs(
        [edition], after=story.planned_until, count=MAX_COUNTED, skipped_times=story.skips
    )
    return len(counted) == MAX_COUNTED or any(each.at == at for each in counted)


def _first(story: ScheduleHistory, after: datetime) -> datetime | None:
    found = upcoming_runs(story.windows, after=after, count=1)
    return found[0].at if found else None


def _next_attempt(row: Row) -> str:
    at = row["next_attempt_at"]
    return "once" if at is None else instant_text(at)
