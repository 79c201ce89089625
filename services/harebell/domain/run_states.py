"""The model of the ledger: states, reasons, transitions, fencing tokens and start ranks of runs.

The SQL of `storage/runs` takes its states from this model, and `tests/contract` compares both, as
well as the status of schedules in the SQL of intake and of the ticker.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, TypeGuard

from harebell.contract.ids import RunKey
from harebell.contract.types import milliseconds
from harebell.domain.retry import Dead, Decision, Expired, Retry

# The age of the oldest scheduled time that a backfill, an audit or `why` examines, and of the
# oldest partition that a migration creates. The setting HAREBELL_RUN_RETENTION decides the age of
# the runs that the ticker removes, which may be smaller or larger.
RETENTION: Final = timedelta(days=30)

SEQ_BITS: Final = 32  # of `seq`, below the epoch
MAX_EPOCH: Final = 2**21 - 1  # so that a token stays below 2**53, which every JSON reader can store

# The lateness after which a waiting run is as urgent as a punctual run of the next priority.
PRIORITY_STEP: Final = timedelta(seconds=5)


class RunState(StrEnum):
    """The states of a run."""

    STAGED = "staged"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    UNRESOLVED = "unresolved"  # the outcome is unknown until a person resolves the run
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class ScheduleState(StrEnum):
    """The states of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    BLOCKED = "blocked"  # until a person resolves an unresolved run
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ERRORED = "errored"
    DELETED = "deleted"  # its versions and runs stay readable, and a put may use its key again


class Reason(StrEnum):
    """The reasons for a run that does not simply execute."""

    SUPERSEDED = "superseded"  # a new version does not contain this scheduled time
    PAUSED = "paused"
    CANCELLED = "cancelled"
    MISSED = "missed"  # the catch-up policy stages no run
    EXPIRED = "expired"
    UNKNOWN_OUTCOME = "unknown_outcome"  # `on_unknown` is skip or block
    MANUAL = "manual"  # a person skipped the time or resolved the run
    OVERLAP = "overlap"  # another run of the schedule was unfinished
    WAITING_FOR_OVERLAP = "waiting_for_overlap"  # until another run of the schedule has ended
    WAITING_FOR_LABEL = "waiting_for_label"  # until a run with the same label has ended
    RATE_LIMITED = "rate_limited"  # the rate limit allows no start now
    BLACKOUT = "blackout"  # a calendar holds back starts until its end
    REPLACED = "replaced"  # by a newer run of the schedule


class Actor(StrEnum):
    """The parts of Harebell that change the state of a run."""

    TICKER = "ticker"
    RESTAGE = "restage"  # ticker, for a time that a version requires again
    RESOLVE = "resolve"  # ticker, for a person
    CLAIM = "claim"  # executor
    COMPLETE = "complete"  # executor, with its fencing token
    RETURN = "return"  # executor, with its fencing token, at a stop
    RECOVER = "recover"  # ticker, after the lease has expired
    REPLAY = "replay"  # dlq_inspector
    OVERLAP = "overlap"  # any service that holds the lock of a schedule that restricts overlap
    LABEL = "label"  # any service that holds the lock of a concurrency label
    DELAY = "delay"  # executor, for a run that must not start yet


OPEN: Final = frozenset({RunState.STAGED, RunState.RUNNING, RunState.RETRYING})
ENDED: Final = frozenset(RunState) - OPEN

_WITHOUT_END: Final = frozenset({RunState.UNRESOLVED})  # a person still decides about the outcome
_S = RunState
TRANSITIONS: Final[dict[tuple[RunState, RunState], frozenset[Actor]]] = {
    (_S.STAGED, _S.RUNNING): frozenset({Actor.CLAIM}),
    (_S.STAGED, _S.CANCELLED): frozenset({Actor.TICKER, Actor.OVERLAP}),
    (_S.STAGED, _S.EXPIRED): frozenset({Actor.TICKER}),
    (_S.STAGED, _S.SKIPPED): frozenset({Actor.TICKER, Actor.OVERLAP}),
    # A staged run moves to a new version, wakes up after a wait, or is delayed.
    (_S.STAGED, _S.STAGED): frozenset({Actor.TICKER, Actor.OVERLAP, Actor.LABEL, Actor.DELAY}),
    (_S.RETRYING, _S.RUNNING): frozenset({Actor.CLAIM}),
    (_S.RETRYING, _S.RETRYING): frozenset({Actor.OVERLAP, Actor.LABEL, Actor.DELAY}),
    (_S.RETRYING, _S.CANCELLED): frozenset({Actor.TICKER, Actor.OVERLAP}),
    (_S.RETRYING, _S.EXPIRED): frozenset({Actor.TICKER}),
    **{
        (_S.RUNNING, to): frozenset({Actor.COMPLETE, Actor.RECOVER})
        for to in (_S.SUCCEEDED, _S.DEAD, _S.CANCELLED, _S.EXPIRED, _S.SKIPPED)
    },
    (_S.RUNNING, _S.UNRESOLVED): frozenset({Actor.RECOVER}),
    (_S.RUNNING, _S.STAGED): frozenset({Actor.RETURN, Actor.DELAY}),
    (_S.RUNNING, _S.RETRYING): frozenset(
        {Actor.COMPLETE, Actor.RECOVER, Actor.RETURN, Actor.DELAY}
    ),
    (_S.CANCELLED, _S.STAGED): frozenset({Actor.RESTAGE}),  # never attempted
    (_S.CANCELLED, _S.SKIPPED): frozenset({Actor.RESTAGE}),  # and then missed
    (_S.DEAD, _S.STAGED): frozenset({Actor.REPLAY}),  # with the next replay number
    **{
        (_S.UNRESOLVED, to): frozenset({Actor.RESOLVE})
        for to in (_S.STAGED, _S.SUCCEEDED, _S.SKIPPED)
    },
}

# A later version may require the run of a scheduled time again after these reasons.
RESTAGEABLE: Final = frozenset({Reason.SUPERSEDED, Reason.PAUSED, Reason.CANCELLED})

# For these reasons, a running attempt receives a stop request and has no retry.
STOPPING_REASONS: Final = frozenset({Reason.REPLACED, Reason.CANCELLED})


def unstaged_state(reason: Reason) -> RunState:
    """Return the state of a run that is unstaged before its first attempt."""
    return RunState.SKIPPED if reason is Reason.MANUAL else RunState.CANCELLED


def is_allowed(actor: Actor, before: RunState, after: RunState) -> bool:
    """Return whether the model allows a transition. Each transition increases `seq` by 1."""
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


# The outcomes of an attempt.
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"


class RunEnd(NamedTuple):
    """The end of a run, or of `runs` runs that one row represents."""

    state: RunState
    reason: str | None
    runs: int = 1


# The lease holder of a delegated run. The name of an executor has a suffix and never equals it.
WORKER: Final = "worker"


def is_executor(lease_holder: str | None) -> TypeGuard[str]:
    """Return whether the holder of a lease is an executor, and not a worker."""
    return lease_holder is not None and lease_holder != WORKER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRun:
    """The row of a reported run, and the end of its last attempt, or None without one."""

    state: str
    attempt: int
    token: int
    lease_holder: str | None
    started_at: datetime | None
    stop_reason: str | None
    failed_probes: int
    last_outcome: str | None
    last_code: str | None


class AttemptCompletion(NamedTuple):
    """The outcome of an attempt and the next state of its run, as a tuple (decision 19).

    `staged_at` is None for a retry that waits in PostgreSQL. `healthy` is the state of the
    downstream, or None if the attempt does not show it. `is_failed_probe` is true for a failed
    probe of a breaker, which does not count for `max_attempts`.
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
    is_failed_probe: bool = False
    trace: str | None = None  # the traceparent of the span of the attempt, if it was recorded

    @property
    def duration_ms(self) -> float | None:
        if self.started_at is None:
            return None
        return milliseconds(self.finished_at - self.started_at)

    def stopped(self, reason: str) -> "AttemptCompletion":
        """Return the completion without a retry, after a stop request."""
        cancelled = self._replace(state=RunState.CANCELLED, reason=reason)
        return cancelled._replace(next_attempt_at=None, staged_at=None)

    @property
    def end(self) -> RunEnd | None:
        """The end of the run, or None if another attempt follows."""
        return None if self.next_attempt_at is not None else RunEnd(self.state, self.reason)


def state_after(decision: Decision) -> tuple[RunState, str | None, datetime | None]:
    """Return the state of a run after a failed attempt, its reason, and the time of the retry."""
    match decision:
        case Retry(at):
            return RunState.RETRYING, None, at
        case Dead(reason):
            return RunState.DEAD, reason, None
        case Expired():
            return RunState.EXPIRED, Reason.EXPIRED, None


def fencing_token(epoch: int | None, seq: int) -> int:
    """Return the fencing token of a claim: the epoch of the database above the `seq` of the row.

    A promoted standby may lack the last claims, so its rows may issue a `seq` that a target has
    seen. Its higher epoch makes every token of its claims higher than all earlier ones.
    A row that an older release claimed has no epoch.
    """
    return (epoch or 0) << SEQ_BITS | seq


def seq_of(token: int) -> int:
    """Return the `seq` of the row directly after the claim."""
    return token & ((1 << SEQ_BITS) - 1)


class RunResult(NamedTuple):
    """The state and the attempts of a run.

    `is_unstaged` is true if a pause or a new version cancelled the run before its first attempt.
    Planning may stage such a run again, so the run has not ended for its schedule.
    """

    state: RunState
    attempt: int
    is_unstaged: bool = False

    @property
    def has_ended(self) -> bool:
        """Return whether the ticker may remove the run from the open runs of its schedule."""
        return self.state in ENDED and self.state not in _WITHOUT_END

    @property
    def is_execution(self) -> bool:
        """Return whether the run has ended after at least one attempt."""
        return self.has_ended and self.attempt > 0

    @property
    def is_failure(self) -> bool:
        return self.state is RunState.DEAD


def visible_state(stored: ScheduleState, *, has_open_run: bool) -> ScheduleState:
    """Return the state that users see. A schedule with an open run is not completed.

    The ticker stores `completed` as soon as nothing is left to plan, before the last run starts.
    """
    if stored is ScheduleState.COMPLETED and has_open_run:
        return ScheduleState.ACTIVE
    return stored


def result_of(state: ScheduleState, last_run: RunState | None) -> RunState | None:
    """Return how a completed schedule ended: the state of its last run, or None without a run."""
    return last_run if state is ScheduleState.COMPLETED else None


def start_rank(due_at: datetime, priority: int) -> datetime:
    """Return the start rank of a run. Among due runs, the lowest rank starts first.

    A run gains one priority step per PRIORITY_STEP of its lateness. Every run gains these steps
    equally fast, so the order of two ranks never changes. A run of priority p therefore starts
    before each run of priority p + n that is due more than n * PRIORITY_STEP later.
    """
    return due_at - PRIORITY_STEP * priority
