"""What a replay of many does next: how many more, when to look again, whether it is over."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

BATCH: Final = 100  # letters of one transaction
MAX_UNFINISHED: Final = 1_000  # replayed runs that have not ended, before more follow them
MAX_UNFINISHED_WITH_RATIO: Final = 100  # the same where their failures may stop it
SAMPLE: Final = 10  # ended runs, below which a part of them says nothing
BURST: Final = timedelta(seconds=1)  # of a rate, that may be made up for at once
LOOK: Final = timedelta(seconds=1)  # between looks at runs that have not ended


class ReplayJobState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"


class AbortReason(StrEnum):
    """Why a replay was aborted."""

    CANARY_FAILED = "canary_failed"
    FAILURE_RATIO = "failure_ratio"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A row of `replay_jobs`. `failed`: ended, and not in success."""

    id: UUID
    tenant: str
    state: ReplayJobState
    actor: str | None = None
    note: str | None = None
    canary: int | None = None
    rate: float | None = None
    abort_on_failure_ratio: float | None = None
    pool: str | None = None
    total: int
    taken: int = 0
    replayed: int = 0
    succeeded: int = 0
    failed: int = 0
    next_allowed_at: datetime

    @property
    def decided(self) -> int:
        return self.succeeded + self.failed

    @property
    def undecided(self) -> int:
        return self.replayed - self.decided

    @property
    def is_canary_out(self) -> bool:
        """Nothing else is replayed before all of these have ended well."""
        return self.canary is not None and self.taken <= self.canary

    @property
    def has_failed_too_often(self) -> bool:
        enough = self.decided >= min(SAMPLE, self.total)
        return (
            self.abort_on_failure_ratio is not None
            and enough
            and self.failed > self.abort_on_failure_ratio * self.decided
        )


@dataclass(frozen=True, slots=True)
class TakeBatch:
    """So many more, now; none where it must wait. `due_at` None: never by itself again."""

    number: int
    next_allowed_at: datetime
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Finish:
    """Not to be looked at again; aborted, it is, until the last replayed run has ended."""

    state: ReplayJobState
    reason: AbortReason | None
    due_at: datetime | None


Step: TypeAlias = TakeBatch | Finish

# What a person may do to one that is not over.
_CHANGES: Final = {
    ("dlq.replay_job.pause", ReplayJobState.RUNNING): ReplayJobState.PAUSED,
    ("dlq.replay_job.resume", ReplayJobState.PAUSED): ReplayJobState.RUNNING,
    ("dlq.replay_job.abort", ReplayJobState.RUNNING): ReplayJobState.ABORTED,
    ("dlq.replay_job.abort", ReplayJobState.PAUSED): ReplayJobState.ABORTED,
}


def next_state(verb: str, state: ReplayJobState) -> ReplayJobState | None:
    """None where it stays as it is."""
    return _CHANGES.get((verb, state))


def next_step(job: ReplayJob, now: datetime) -> Step:
    """With the outcomes counted that are known by now."""
    later = now + LOOK if job.undecided else None
    if job.state is not ReplayJobState.RUNNING:
        return TakeBatch(0, job.next_allowed_at, later)
    if job.is_canary_out and job.failed:
        return Finish(ReplayJobState.ABORTED, AbortReason.CANARY_FAILED, later)
    if job.has_failed_too_often:
        return Finish(ReplayJobState.ABORTED, AbortReason.FAILURE_RATIO, later)
    if job.taken == job.total and not job.undecided:
        return Finish(ReplayJobState.DONE, None, None)
    return _more(job, now)


def _more(job: ReplayJob, now: datetime) -> TakeBatch:
    room = min(BATCH, _left(job), _most_undecided(job) - job.undecided)
    if room <= 0:
        return TakeBatch(0, job.next_allowed_at, now + LOOK)
    if job.rate is None:
        return TakeBatch(room, now, now)
    next_allowed_at = max(job.next_allowed_at, now - BURST)
    if next_allowed_at > now:
        return TakeBatch(0, next_allowed_at, next_allowed_at)
    number = min(room, int((now - next_allowed_at).total_seconds() * job.rate) + 1)
    next_allowed_at += timedelta(seconds=number / job.rate)
    return TakeBatch(number, next_allowed_at, max(now, next_allowed_at))


def _left(job: ReplayJob) -> int:
    """In this stretch: the canary, and once all of it has ended, the others."""
    canary = min(job.canary or 0, job.total)
    waits = job.taken < canary or (job.taken == canary and job.undecided)
    return (canary if waits else job.total) - job.taken


def _most_undecided(job: ReplayJob) -> int:
    return MAX_UNFINISHED if job.abort_on_failure_ratio is None else MAX_UNFINISHED_WITH_RATIO
