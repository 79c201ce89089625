"""The model of the ledger: states of a run, who may move it where, and why. SQL is held to it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from harebell.contract.ids import RunKey
from harebell.domain.retry import Dead, Decision, Expired, Retry

RETENTION: Final = timedelta(days=30)  # no run is older


class RunState(StrEnum):
    STAGED = "staged"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    UNRESOLVED = "unresolved"  # started, never heard of again: a person must say what became of it
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    BLOCKED = "blocked"  # until a held run is resolved
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ERRORED = "errored"


class Reason(StrEnum):
    """Why a run is not simply owed: the closed list."""

    SUPERSEDED = "superseded"  # a new version does not owe this instant
    PAUSED = "paused"
    CANCELLED = "cancelled"
    MISSED = "missed"  # missed, and the policy says not to make up for it
    EXPIRED = "expired"
    UNKNOWN_OUTCOME = "unknown_outcome"  # started, never heard of again; on_unknown: skip, hold
    MANUAL = "manual"  # a person took this instant out, or resolved the run so
    OVERLAP = "overlap"  # another run of its schedule was not over
    WAITING_FOR_OVERLAP = "waiting_for_overlap"  # for its turn behind another run of its schedule
    RATE_LIMITED = "rate_limited"  # put off: its limit allows no more starts for now
    REPLACED = "replaced"  # by a newer run of its schedule


class Actor(StrEnum):
    """Who moves a run."""

    TICKER = "ticker"
    CLAIM = "claim"  # executor
    COMPLETE = "complete"  # executor, fenced by its token
    RETURN = "return"  # executor, fenced; graceful stop
    RECOVER = "recover"  # ticker, when the lease has lapsed
    REPLAY = "replay"  # dlq_inspector
    OVERLAP = "overlap"  # whoever decides, under its lock, about a schedule that takes turns
    RATE_LIMIT = "rate_limit"  # executor, which puts off what may not start yet


OPEN: Final = frozenset({RunState.STAGED, RunState.RUNNING, RunState.RETRYING})
ENDED: Final = frozenset(RunState) - OPEN

_S = RunState
TRANSITIONS: Final[dict[tuple[RunState, RunState], frozenset[Actor]]] = {
    (_S.STAGED, _S.RUNNING): frozenset({Actor.CLAIM}),
    (_S.STAGED, _S.CANCELLED): frozenset({Actor.TICKER, Actor.OVERLAP}),
    (_S.STAGED, _S.EXPIRED): frozenset({Actor.TICKER}),
    (_S.STAGED, _S.SKIPPED): frozenset({Actor.TICKER, Actor.OVERLAP}),
    (_S.STAGED, _S.STAGED): frozenset(
        {Actor.TICKER, Actor.OVERLAP, Actor.RATE_LIMIT}  # takes a new version; is woken; is put off
    ),
    (_S.RETRYING, _S.RUNNING): frozenset({Actor.CLAIM}),
    (_S.RETRYING, _S.RETRYING): frozenset(
        {Actor.OVERLAP, Actor.RATE_LIMIT}
    ),  # is woken; is put off
    (_S.RETRYING, _S.CANCELLED): frozenset({Actor.TICKER, Actor.OVERLAP}),
    (_S.RETRYING, _S.EXPIRED): frozenset({Actor.TICKER}),
    **{
        (_S.RUNNING, to): frozenset({Actor.COMPLETE, Actor.RECOVER})
        for to in (_S.SUCCEEDED, _S.DEAD, _S.CANCELLED, _S.EXPIRED, _S.SKIPPED)
    },
    (_S.RUNNING, _S.UNRESOLVED): frozenset({Actor.RECOVER}),
    (_S.RUNNING, _S.STAGED): frozenset({Actor.RETURN, Actor.RATE_LIMIT}),
    (_S.RUNNING, _S.RETRYING): frozenset(
        {Actor.COMPLETE, Actor.RECOVER, Actor.RETURN, Actor.RATE_LIMIT}
    ),
    (_S.CANCELLED, _S.STAGED): frozenset({Actor.TICKER}),  # owed again, never attempted
    (_S.CANCELLED, _S.SKIPPED): frozenset({Actor.TICKER}),  # owed again, and then not made up for
    (_S.DEAD, _S.STAGED): frozenset({Actor.REPLAY}),  # a replay: a new series
    **{
        (_S.UNRESOLVED, to): frozenset({Actor.TICKER})  # resolved by a person
        for to in (_S.STAGED, _S.SUCCEEDED, _S.SKIPPED)
    },
}

# One instant of one schedule is one run, whatever the version: these may be owed again.
RESTAGEABLE: Final = frozenset({Reason.SUPERSEDED, Reason.PAUSED, Reason.CANCELLED})

# For these also what has started is asked to stop, and is not tried again.
STOPPING_REASONS: Final = frozenset({Reason.REPLACED, Reason.CANCELLED})


def unstaged_state(reason: Reason) -> RunState:
    """The state of a row that is withdrawn before it began."""
    return RunState.SKIPPED if reason is Reason.MANUAL else RunState.CANCELLED


def is_allowed(actor: Actor, before: RunState, after: RunState) -> bool:
    """Every transition adds one to `seq`, which never goes backward."""
    return actor in TRANSITIONS.get((before, after), frozenset())


class Placement(NamedTuple):
    """The tenant, version, pool, lane and priority of a run, as a tuple (decision 19)."""

    tenant: str
    version: int
    pool: str
    lane: str
    priority: int


class NewRun(NamedTuple):
    """A run to stage, as a tuple because a pass creates one for each run (decision 19).

    `origin` is None for a run of the recurrence.
    """

    key: RunKey
    placement: Placement
    due_at: datetime
    expires_at: datetime | None
    origin: str | None = None
    override: str | None = None  # JSON with the fields of the run spec that this run replaces

    @property
    def scheduled_for(self) -> datetime:
        return self.key.scheduled_for


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange:
    """Scheduled times that get no run, as one row with the key of the first time.

    The range ends with `until` and contains `count` times.
    """

    key: RunKey
    placement: Placement
    until: datetime
    count: int
    reason: Reason


# outcomes of an attempt
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"


class RunEnd(NamedTuple):
    """Of a run; or of so many, that one row stands for."""

    state: RunState
    reason: str | None
    runs: int = 1


class AttemptCompletion(NamedTuple):
    """`outcome` is the attempt's, `state` the run's. `staged_at` None of a retry: it rests.

    `healthy`: whether whoever was called did its part; None: the attempt tells nothing of it.
    """

    key: RunKey
    token: int
    state: RunState
    outcome: str
    started_at: datetime | None
    finished_at: datetime
    reason: str | None = None
    next_attempt_at: datetime | None = None
    staged_at: datetime | None = None
    error_code: str | None = None
    error: str | None = None
    http_status: int | None = None
    result: str | None = None
    healthy: bool | None = None

    @property
    def duration_ms(self) -> float | None:
        if self.started_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds() * 1000

    def stopped(self, reason: str) -> "AttemptCompletion":
        """As the last of its run: what was to be tried again has been asked to stop meanwhile."""
        cancelled = self._replace(state=RunState.CANCELLED, reason=reason)
        return cancelled._replace(next_attempt_at=None, staged_at=None)

    @property
    def end(self) -> RunEnd | None:
        """Of the run; None when another attempt follows."""
        return None if self.next_attempt_at is not None else RunEnd(self.state, self.reason)


def state_after(decided: Decision) -> tuple[RunState, str | None, datetime | None]:
    """The run's state after a failed attempt, the reason, and when it is tried again."""
    match decided:
        case Retry(at):
            return RunState.RETRYING, None, at
        case Dead(reason):
            return RunState.DEAD, reason, None
        case Expired():
            return RunState.EXPIRED, Reason.EXPIRED, None
