"""Why a run did not happen, in words: the one text for every code of the ledger.

The same table stands in docs/architecture/preview-and-why.md.
"""

from typing import Final

from harebell.kernel.ledger import Reason, ScheduleState

WORDS: Final[dict[Reason, str]] = {
    Reason.SUPERSEDED: "a new version of the schedule does not have this instant",
    Reason.PAUSED: "the schedule was paused",
    Reason.CANCELLED: "the run, or its schedule, was cancelled",
    Reason.CATCH_UP: "it was missed, and the catch-up policy does not make up for it",
    Reason.EXPIRED: "it had not started by the time that expires_after allows",
    Reason.UNKNOWN_OUTCOME: "it started and was never heard of again; on_unknown says what then",
    Reason.REQUESTED: "a person took it out",
    Reason.OVERLAP: "another run of the schedule was not over",
    Reason.WAITING: "it waits its turn behind another run of the schedule",
    Reason.LIMITED: "its limit allows no more starts for now; it waits, its attempt unused",
    Reason.REPLACED: "a newer run of the schedule took its place",
}

# Of an instant that nothing is on record of: how its schedule stands.
STANDING: Final[dict[ScheduleState, str]] = {
    ScheduleState.ACTIVE: "the schedule is active",
    ScheduleState.PAUSED: "the schedule is paused; once resumed, catch-up decides what it missed",
    ScheduleState.HELD: "the schedule is held until a person resolves its held run",
    ScheduleState.COMPLETED: "the schedule has no run left to make",
    ScheduleState.CANCELLED: "the schedule is cancelled",
    ScheduleState.PARKED: "the schedule is parked: its next instant cannot be computed",
}


def words(code: str | None) -> str | None:
    """None for a code that is not of the list: a failure's own, which has a message."""
    return WORDS[Reason(code)] if code in set(Reason) else None
