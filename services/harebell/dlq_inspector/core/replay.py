"""What a replay of many does next: how many more, when to look again, whether it is over."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

BATCH: Final = 100  # letters of one transaction
UNDECIDED: Final = 1_000  # replayed runs that have not ended, before more follow them
WATCHED: Final = 100  # the same where their failures may stop it
SAMPLE: Final = 10  # ended runs, below which a part of them says nothing
BURST: Final = timedelta(seconds=1)  # of a rate, that may be made up for at once
LOOK: Final = timedelta(seconds=1)  # between looks at runs that have not ended


class JobState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"


class Stopped(StrEnum):
    """Why a replay was aborted."""

    CANARY_FAILED = "canary_failed"
    FAILURE_RATIO = "failure_ratio"
    REQUESTED = "requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row of `replay_jobs`. `failed`: ended, and not in success."""

    id: UUID
    tenant: str
    state: JobState
    actor: str | None = None
    note: str | None = None
    canary: int | None = None
    rate: float | None = None
    abort_ratio: float | None = None
    pool: str | None = None
    total: int
    taken: int = 0
    replayed: int = 0
    succeeded: int = 0
    failed: int = 0
    paced_at: datetime

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
            self.abort_ratio is not None
            and enough
            and self.failed > self.abort_ratio * self.decided
        )


@dataclass(frozen=True, slots=True)
class Take:
    """So many more, now; none where it must wait. `due_at` None: never by itself again."""

    number: int
    paced_at: datetime
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Finish:
    """Not to be looked at again; aborted, it is, until the last replayed run has ended."""

    state: JobState
    reason: Stopped | None
    due_at: datetime | None


Step: TypeAlias = Take | Finish

# What a person may do to one that is not over.
_CHANGES: Final = {
    ("dlq.pause", JobState.RUNNING): JobState.PAUSED,
    ("dlq.resume", JobState.PAUSED): JobState.RUNNING,
    ("dlq.abort", JobState.RUNNING): JobState.ABORTED,
    ("dlq.abort", JobState.PAUSED): JobState.ABORTED,
}


def changed(verb: str, state: JobState) -> JobState | None:
    """None where it stays as it is."""
    return _CHANGES.get((verb, state))


def next_step(job: Job, now: datetime) -> Step:
    """With the outcomes counted that are known by now."""
    later = now + LOOK if job.undecided else None
    if job.state is not JobState.RUNNING:
        return Take(0, job.paced_at, later)
    if job.is_canary_out and job.failed:
        return Finish(JobState.ABORTED, Stopped.CANARY_FAILED, later)
    if job.has_failed_too_often:
        return Finish(JobState.ABORTED, Stopped.FAILURE_RATIO, later)
    if job.taken == job.total and not job.undecided:
        return Finish(JobState.DONE, None, None)
    return _more(job, now)


def _more(job: Job, now: datetime) -> Take:
    room = min(BATCH, _left(job), _most_undecided(job) - job.undecided)
    if room <= 0:
        return Take(0, job.paced_at, now + LOOK)
    if job.rate is None:
        return Take(room, now, now)
    paced_at = max(job.paced_at, now - BURST)
    if paced_at > now:
        return Take(0, paced_at, paced_at)
    number = min(room, int((now - paced_at).total_seconds() * job.rate) + 1)
    paced_at += timedelta(seconds=number / job.rate)
    return Take(number, paced_at, max(now, paced_at))


def _left(job: Job) -> int:
    """In this stretch: the canary, and once all of it has ended, the others."""
    canary = min(job.canary or 0, job.total)
    waits = job.taken < canary or (job.taken == canary and job.undecided)
    return (canary if waits else job.total) - job.taken


def _most_undecided(job: Job) -> int:
    return UNDECIDED if job.abort_ratio is None else WATCHED
