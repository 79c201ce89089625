"""What became of an instant, or what will, and why: one decision over loaded rows. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from harebell.contract.scalars import instant_text
from harebell.intake.story import Story
from harebell.intake.views import Row
from harebell.kernel.ledger import RETENTION, Reason, RunState, ScheduleState
from harebell.kernel.preview import Edition, coming, described
from harebell.kernel.reasons import STANDING, WORDS, words
from harebell.kernel.timetable import AfterEnd

MAX_COUNTED: Final = 1_000  # instants up to the one asked about, where `times` bounds them


class Verdict(StrEnum):
    """The closed list of what there is to say of an instant."""

    RAN = "ran"  # it has begun, whatever came of it
    WILL_RUN = "will_run"
    DID_NOT = "did_not"
    WILL_NOT = "will_not"
    NOT_YET = "not_yet"  # it was due, and no ticker has come to it
    NOT_DUE = "not_due"  # the timetable has no such instant
    BEFORE = "before"  # the schedule did not exist
    NO_RECORD = "no_record"


@dataclass(frozen=True, slots=True)
class Why:
    """`code` is a reason of the ledger, or the state of the schedule."""

    at: datetime | None
    verdict: Verdict
    words: str
    code: str | None = None
    edition: Edition | None = None
    notes: tuple[str, ...] = ()
    before: datetime | None = None
    behind: datetime | None = None


def why(story: Story, at: datetime | None, row: Row | None, *, now: datetime) -> Why:
    """`row` is the run of that instant, or the one that stands for a range with it."""
    if at is None:
        return Why(None, Verdict.NOT_DUE, "no instant has come yet", behind=_first(story, now))
    if row is not None:
        return _recorded(story, at, row, now)
    edition = story.in_force(at)
    if edition is None:
        return Why(at, Verdict.BEFORE, "the schedule did not exist yet", behind=_first(story, at))
    if isinstance(edition.table, AfterEnd):
        text = "each run comes so long after the end of the one before; none has this instant"
        return Why(at, Verdict.NOT_DUE, text, edition=edition, before=story.awaiting)
    if not edition.owes(at):
        return _not_due(edition, at)
    return _to_come(story, edition, at) if at > now else _past(story, edition, at, now)


def _recorded(story: Story, at: datetime, row: Row, now: datetime) -> Why:
    state, reason = RunState(row["state"]), row["reason"]
    edition = next((each for each in story.editions if each.number == row["version"]), None)
    match state:
        case RunState.STAGED:
            late = "; it is late" if row["due_at"] < now else ""
            text = words(reason) or f"it is handed over, due at {instant_text(row['due_at'])}{late}"
            return Why(at, Verdict.WILL_RUN, text, reason, edition)
        case RunState.CANCELLED | RunState.EXPIRED | RunState.SKIPPED:
            text = words(reason) or f"it is {state}"
            return Why(at, Verdict.DID_NOT, text + _range(row), reason, edition)
        case RunState.DEAD:
            text = f"it failed for good at attempt {row['attempt']} and is a dead letter"
        case RunState.HELD:
            text = f"{WORDS[Reason.UNKNOWN_OUTCOME]}: a person must resolve it"
        case RunState.SUCCEEDED:
            text = f"it succeeded at attempt {row['attempt']}"
        case RunState.RETRYING:
            text = f"attempt {row['attempt']} failed; the next is at {_next_attempt(row)}"
        case RunState.RUNNING:
            text = f"attempt {row['attempt']} is under way"
    return Why(at, Verdict.RAN, text, reason, edition)


def _range(row: Row) -> str:
    if row["range_until"] is None or row["range_count"] in (None, 1):
        return ""
    first, last = instant_text(row["scheduled_for"]), instant_text(row["range_until"])
    return f"; so with {row['range_count']} instants from {first} to {last}"


def _not_due(edition: Edition, at: datetime) -> Why:
    return Why(
        at,
        Verdict.NOT_DUE,
        f"version {edition.number}, in force then, has no such instant",
        edition=edition,
        before=edition.last_until(at),
        behind=edition.next_after(at),
    )


def _to_come(story: Story, edition: Edition, at: datetime) -> Why:
    if at in story.skips:
        return _will_not(at, edition, Reason.REQUESTED, WORDS[Reason.REQUESTED])
    paused_past = story.state is ScheduleState.PAUSED and (
        story.paused_until is not None and story.paused_until <= at
    )
    if story.state is not ScheduleState.ACTIVE and not paused_past:
        return _will_not(at, edition, story.state, _standing(story))
    if not _within_times(story, edition, at):
        text = "the runs before it use up `times`"
        return _will_not(at, edition, ScheduleState.COMPLETED, text)
    found = described(edition, at)
    notes = tuple(note.words for note in found.notes)
    text = f"it is planned, due at {instant_text(found.due_at)}"
    return Why(at, Verdict.WILL_RUN, text, edition=edition, notes=notes)


def _will_not(at: datetime, edition: Edition, code: Reason | ScheduleState, text: str) -> Why:
    return Why(at, Verdict.WILL_NOT, text, code, edition)


def _past(story: Story, edition: Edition, at: datetime, now: datetime) -> Why:
    if now - at > RETENTION:
        text = f"older than {RETENTION.days} days, which is as far as the record goes"
        return Why(at, Verdict.NO_RECORD, text, edition=edition)
    if at in story.skips:
        return Why(at, Verdict.DID_NOT, WORDS[Reason.REQUESTED], Reason.REQUESTED, edition)
    if story.state is not ScheduleState.ACTIVE:
        return Why(at, Verdict.DID_NOT, _standing(story), story.state, edition)
    if at > story.planned_to:
        text = "it was due, and no ticker has come to it yet"
        return Why(at, Verdict.NOT_YET, text, edition=edition)
    return Why(at, Verdict.NO_RECORD, "nothing is on record of it", edition=edition)


def _standing(story: Story) -> str:
    return STANDING[story.state] + (f" ({story.note})" if story.note else "")


def _within_times(story: Story, edition: Edition, at: datetime) -> bool:
    """Whether `times` leaves a run for it; further away than we count, we say yes."""
    if getattr(edition.terms.when, "times", None) is None:
        return True
    counted = coming([edition], after=story.planned_to, count=MAX_COUNTED, skips=story.skips)
    return len(counted) == MAX_COUNTED or any(each.at == at for each in counted)


def _first(story: Story, after: datetime) -> datetime | None:
    found = coming(story.editions, after=after, count=1)
    return found[0].at if found else None


def _next_attempt(row: Row) -> str:
    at = row["next_attempt_at"]
    return "once" if at is None else instant_text(at)
