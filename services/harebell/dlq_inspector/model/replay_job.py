"""Replay jobs: the decision about the next step of a job."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

MAX_BATCH: Final = 100  # dead letters of one transaction
MAX_UNFINISHED: Final = 1_000  # replayed runs without an end, above which the job waits
MAX_UNFINISHED_WITH_RATIO: Final = 100  # the same for a job that failures may abort
MIN_RATIO_SAMPLE: Final = 10  # ended runs, below which the failure ratio is ignored
MAX_BURST: Final = timedelta(seconds=1)  # the delay that a job with a rate may catch up
CHECK_INTERVAL: Final = timedelta(seconds=1)  # the pause between checks of unfinished runs


class ReplayJobState(StrEnum):
    """The state of a replay job."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"


class AbortReason(StrEnum):
    """The reason of an aborted replay job."""

    CANARY_FAILED = "canary_failed"
    FAILURE_RATIO = "failure_ratio"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """One row of `replay_jobs`. `failed` counts the runs that ended without success."""

    id: UUID
    tenant: str
    state: ReplayJobState
    reason: str | None = None  # of the state aborted or of an automatic pause
    actor: str | None = None
    note: str | None = None
    canary: int | None = None
    rate: float | None = None  # replays per second
    abort_on_failure_ratio: float | None = None
    pool: str | None = None
    total: int
    taken: int = 0
    replayed: int = 0
    succeeded: int = 0
    failed: int = 0
    next_allowed_at: datetime

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed

    @property
    def unfinished(self) -> int:
        return self.replayed - self.ended

    @property
    def is_in_canary(self) -> bool:
        """Return whether the job has taken no dead letter after its canary."""
        return self.canary is not None and self.taken <= self.canary

    @property
    def is_failure_ratio_exceeded(self) -> bool:
        is_sample = self.ended >= min(MIN_RATIO_SAMPLE, self.total)
        return (
            self.abort_on_failure_ratio is not None
            and is_sample
            and self.failed > self.abort_on_failure_ratio * self.ended
        )


@dataclass(frozen=True, slots=True)
class TakeBatch:
    """The decision to replay `count` dead letters now, or none while the job must wait.

    A job without `next_check_at` needs no further check.
    """

    count: int
    next_allowed_at: datetime
    next_check_at: datetime | None


@dataclass(frozen=True, slots=True)
class Finish:
    """The decision to end the job. An aborted job is checked until its last run has ended."""

    state: ReplayJobState
    reason: AbortReason | None
    next_check_at: datetime | None


Step: TypeAlias = TakeBatch | Finish

# The changes of state that a person may request. A job that has ended allows none.
_NEXT_STATES: Final = {
    ("dlq.replay_job.pause", ReplayJobState.RUNNING): ReplayJobState.PAUSED,
    ("dlq.replay_job.resume", ReplayJobState.PAUSED): ReplayJobState.RUNNING,
    ("dlq.replay_job.abort", ReplayJobState.RUNNING): ReplayJobState.ABORTED,
    ("dlq.replay_job.abort", ReplayJobState.PAUSED): ReplayJobState.ABORTED,
}


def next_state(verb: str, state: ReplayJobState) -> ReplayJobState | None:
    """Return the state after the command, or None if the command changes nothing."""
    return _NEXT_STATES.get((verb, state))


def next_step(job: ReplayJob, now: datetime) -> Step:
    """Return the next step of a job whose counts include every known outcome."""
    next_check_at = now + CHECK_INTERVAL if job.unfinished else None
    if job.state is not ReplayJobState.RUNNING:
        return TakeBatch(0, job.next_allowed_at, next_check_at)
    if job.is_in_canary and job.failed:
        return Finish(ReplayJobState.ABORTED, AbortReason.CANARY_FAILED, next_check_at)
    if job.is_failure_ratio_exceeded:
        return Finish(ReplayJobState.ABORTED, AbortReason.FAILURE_RATIO, next_check_at)
    if job.taken == job.total and not job.unfinished:
        return Finish(ReplayJobState.DONE, None, None)
    return _next_batch(job, now)


def next_capacity(job: ReplayJob) -> int:
    """Return how many dead letters a running job may replay now, without regard to its rate."""
    return min(MAX_BATCH, _remaining(job), _max_unfinished(job) - job.unfinished)


def _next_batch(job: ReplayJob, now: datetime) -> TakeBatch:
    capacity = next_capacity(job)
    if capacity <= 0:
        return TakeBatch(0, job.next_allowed_at, now + CHECK_INTERVAL)
    if job.rate is None:
        return TakeBatch(capacity, now, now)
    next_allowed_at = max(job.next_allowed_at, now - MAX_BURST)
    if next_allowed_at > now:
        return TakeBatch(0, next_allowed_at, next_allowed_at)
    count = min(capacity, int((now - next_allowed_at).total_seconds() * job.rate) + 1)
    next_allowed_at += timedelta(seconds=count / job.rate)
    return TakeBatch(count, next_allowed_at, max(now, next_allowed_at))


def _remaining(job: ReplayJob) -> int:
    """Return the rest of the canary, or the rest of the job after every canary run has ended."""
    canary = min(job.canary or 0, job.total)
    waits = job.taken < canary or (job.taken == canary and job.unfinished)
    return (canary if waits else job.total) - job.taken


def _max_unfinished(job: ReplayJob) -> int:
    return MAX_UNFINISHED if job.abort_on_failure_ratio is None else MAX_UNFINISHED_WITH_RATIO
