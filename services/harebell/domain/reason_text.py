"""The text of each reason and schedule state, for people.

docs/architecture/preview-and-why.md contains the same codes.
"""

from typing import Final

from harebell.domain.run_states import Reason, ScheduleState

REASON_TEXT: Final[dict[Reason, str]] = {
    Reason.SUPERSEDED: "A new version of the schedule does not contain this scheduled time.",
    Reason.PAUSED: "The schedule was paused.",
    Reason.CANCELLED: "The run or its schedule was cancelled.",
    Reason.MISSED: "The scheduled time was missed, and the catch-up policy stages no run for it.",
    Reason.EXPIRED: "The run had not started within the time of `expires_after`.",
    Reason.UNKNOWN_OUTCOME: "The run started and its outcome is unknown. `on_unknown` decides.",
    Reason.MANUAL: "A person removed this scheduled time.",
    Reason.OVERLAP: "Another run of the schedule was unfinished.",
    Reason.WAITING_FOR_OVERLAP: "The run waits until another run of the schedule has ended.",
    Reason.WAITING_FOR_LABEL: "The run waits until a run with the same label has ended.",
    Reason.RATE_LIMITED: "The rate limit allows no further start now. The run waits.",
    Reason.BLACKOUT: "A blackout holds back the start. The run waits for its end.",
    Reason.REPLACED: "A newer run of the schedule replaced this run.",
}

# The text for a scheduled time without a row: it depends on the state of the schedule.
SCHEDULE_STATE_TEXT: Final[dict[ScheduleState, str]] = {
    ScheduleState.ACTIVE: "The schedule is active.",
    ScheduleState.PAUSED: "The schedule is paused. After the resume, the catch-up policy decides.",
    ScheduleState.BLOCKED: "The schedule is blocked until a person resolves its unresolved run.",
    ScheduleState.COMPLETED: "The schedule has no further run.",
    ScheduleState.CANCELLED: "The schedule is cancelled.",
    ScheduleState.ERRORED: "The schedule is errored, because its next time cannot be computed.",
    ScheduleState.DELETED: "The schedule is deleted.",
}


def reason_text(code: str | None) -> str | None:
    """Return the text of a reason, or None for an error code, which has its own message."""
    return REASON_TEXT[Reason(code)] if code in set(Reason) else None
