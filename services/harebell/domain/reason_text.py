"""Why a run did not happen, in words: the one text for every code of the ledger.

The same table stands in docs/architecture/preview-and-why.md.
"""

from typing import Final

from harebell.domain.run_states import Reason, ScheduleState

REASON_TEXT: Final[dict[Reason, str]] = {
    Reason.SUPERSEDED: "a new version of the schedule does not have this instant",
    Reason.PAUSED: "the schedule was paused",
    Reason.CANCELLED: "the run, or its schedule, was cancelled",
    Reason.MISSED: "it was missed, and the catch-up policy does not make up for it",
    Reason.EXPIRED: "it had not started by the time that expires_after allows",
    Reason.UNKNOWN_OUTCOME: "it started and was never heard of again; on_unknown says what then",
    Reason.MANUAL: "a person took it out",
    Reason.OVERLAP: "another run of the schedule was not over",
    Reason.WAITING_FOR_OVERLAP: "it waits its turn behind another run of the schedule",
    Reason.RATE_LIMITED: "its limit allows no more starts for now; it waits, its attempt unused",
    Reason.REPLACED: "a newer run of the schedule took its place",
}

# Of an instant that nothing is on record of: how its schedule stands.
SCHEDULE_STATE_TEXT: Final[dict[ScheduleState, str]] = {
    ScheduleState.ACTIVE: "the schedule is active",
    ScheduleState.PAUSED: "the schedule is paused; once resumed, catch-up decides what it missed",
    ScheduleState.BLOCKED: "the schedule is held until a person resolves its held run",
    ScheduleState.COMPLETED: "the schedule has no run left to make",
    ScheduleState.CANCELLED: "the schedule is cancelled",
    ScheduleState.ERRORED: "the schedule is parked: its next instant cannot be computed",
}


def reason_text(code: str | None) -> str | None:
    """None for a code that is not of the list: a failure's own, which has a message."""
    return REASON_TEXT[Reason(code)] if code in set(Reason) else None
