"""The model of the ledger: states of a run, who may move it where, and why. SQL is held to it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from harebell.contract.identity import RunKey


class RunState(StrEnum):
    STAGED = "staged"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    PARKED = "parked"


class Reason(StrEnum):
    """Why a run is not simply owed: the closed list."""

    SUPERSEDED = "superseded"  # a new version does not owe this instant
    PAUSED = "paused"
    CANCELLED = "cancelled"
    CATCH_UP = "catch_up"  # missed, and the policy says not to make up for it
    EXPIRED = "expired"
    UNKNOWN_OUTCOME = "unknown_outcome"  # started, never heard of again; on_unknown: skip


class Actor(StrEnum):
    """Who moves a run."""

    TICKER = "ticker"
    CLAIM = "claim"  # executor
    SETTLE = "settle"  # executor, fenced by its token
    RELEASE = "release"  # executor, fenced; graceful stop
    SWEEP = "sweep"  # ticker, when the lease has lapsed
    DESK = "desk"  # dlq_inspector


OPEN: Final = frozenset({RunState.STAGED, RunState.RUNNING, RunState.RETRYING})
ENDED: Final = frozenset(RunState) - OPEN

_S = RunState
TRANSITIONS: Final[dict[tuple[RunState, RunState], frozenset[Actor]]] = {
    (_S.STAGED, _S.RUNNING): frozenset({Actor.CLAIM}),
    (_S.STAGED, _S.CANCELLED): frozenset({Actor.TICKER}),
    (_S.STAGED, _S.EXPIRED): frozenset({Actor.TICKER}),
    (_S.STAGED, _S.SKIPPED): frozenset({Actor.TICKER}),
    (_S.STAGED, _S.STAGED): frozenset({Actor.TICKER}),  # takes a new version
    (_S.RETRYING, _S.RUNNING): frozenset({Actor.CLAIM}),
    (_S.RETRYING, _S.CANCELLED): frozenset({Actor.TICKER}),
    (_S.RETRYING, _S.EXPIRED): frozenset({Actor.TICKER}),
    **{
        (_S.RUNNING, to): frozenset({Actor.SETTLE, Actor.SWEEP})
        for to in (_S.SUCCEEDED, _S.RETRYING, _S.DEAD, _S.CANCELLED, _S.EXPIRED, _S.SKIPPED)
    },
    (_S.RUNNING, _S.STAGED): frozenset({Actor.RELEASE}),
    (_S.CANCELLED, _S.STAGED): frozenset({Actor.TICKER}),  # owed again, never attempted
    (_S.DEAD, _S.STAGED): frozenset({Actor.DESK}),  # a replay: a new series
}

# One instant of one schedule is one run, whatever the version: these may be owed again.
REVIVABLE: Final = frozenset({Reason.SUPERSEDED, Reason.PAUSED})


def may(actor: Actor, before: RunState, after: RunState) -> bool:
    """Every transition adds one to `seq`, which never goes backward."""
    return actor in TRANSITIONS.get((before, after), frozenset())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run of a version is worked on."""

    tenant: str
    version: int
    pool: str
    lane: str
    priority: int


@dataclass(frozen=True, slots=True)
class Owed:
    """A run to stage. `origin` None: its schedule's timetable."""

    key: RunKey
    place: Place
    due_at: datetime
    expires_at: datetime | None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class NotOwed:
    """Skipped instants: one row for the first, with the range and the count."""

    key: RunKey
    place: Place
    until: datetime
    count: int
    reason: Reason
