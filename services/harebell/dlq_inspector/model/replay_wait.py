"""The wait of a replay job: what prevents its next replay, as a code and as sentences."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from harebell.contract.breakers import BreakerState
from harebell.contract.views import ReplayJobWait
from harebell.dlq_inspector.model.replay_job import ReplayJob, ReplayJobState, next_capacity
from harebell.domain.time_text import clock_text

_STATE_TEXTS: Final[Mapping[str, str]] = {"half_open": "half open"}


class WaitCode(StrEnum):
    """The reasons for which a replay job does not replay its next dead letter now."""

    PAUSED = "paused"
    CANARY = "canary"  # the runs of the canary have not ended
    RATE = "rate"
    BREAKER = "breaker"  # a circuit breaker defers the runs for which the job waits
    UNFINISHED_RUNS = "unfinished_runs"  # too many replayed runs, or the last of them


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBreaker:
    """A row of `breakers`: the detected state, and the state that a person forced."""

    state: str
    next_probe_at: datetime | None = None
    forced: str | None = None
    forced_until: datetime | None = None

    def is_forced(self, now: datetime) -> bool:
        """Return whether a person has forced the state and its time has not passed."""
        return self.forced is not None and (self.forced_until is None or self.forced_until > now)

    def effective_state(self, now: datetime) -> str:
        return self.forced if self.forced and self.is_forced(now) else self.state


BreakersByName: TypeAlias = Mapping[str, StoredBreaker]


def needs_waiting_runs(job: ReplayJob) -> bool:
    """Return whether the job waits for the end of replayed runs, which a breaker may defer."""
    is_blocked = next_capacity(job) <= 0 and job.unfinished > 0
    return job.state is ReplayJobState.RUNNING and is_blocked


def wait_of(
    job: ReplayJob,
    now: datetime,
    *,
    waiting_runs: Mapping[str, int],
    breakers: BreakersByName,
) -> ReplayJobWait | None:
    """Return what the job waits for, or None if it has ended or replays now.

    `waiting_runs` are the numbers of its unfinished runs that wait for a start, by downstream.
    """
    if job.state is ReplayJobState.PAUSED:
        return _wait_for_resume(job)
    if needs_waiting_runs(job):
        deferring = [
            (runs, name)
            for name, runs in waiting_runs.items()
            if name in breakers and breakers[name].effective_state(now) != BreakerState.CLOSED
        ]
        if deferring:
            runs, name = max(deferring)
            return _wait_for_breaker(job, now, name=name, runs=runs, breaker=breakers[name])
        return _wait_for_runs(job)
    is_limited = job.rate is not None and job.next_allowed_at > now
    if job.state is ReplayJobState.RUNNING and is_limited and job.taken < job.total:
        return _wait_for_rate(job, now)
    return None


def _wait_for_resume(job: ReplayJob) -> ReplayJobWait:
    text = "The replay job is paused until a person resumes it."
    if job.reason:
        text += f" The reason of the pause: {job.reason}"
    return ReplayJobWait(code=WaitCode.PAUSED, text=text)


def _wait_for_breaker(
    job: ReplayJob, now: datetime, *, name: str, runs: int, breaker: StoredBreaker
) -> ReplayJobWait:
    state = breaker.effective_state(now)
    shown = _STATE_TEXTS.get(state, state)
    text = (
        f"{_waiting_part(job)} waits for {_count(runs, 'run')} that the {shown} circuit breaker "
        f"of {name} defers."
    )
    if breaker.is_forced(now):
        until = breaker.forced_until
        end = "a person resets it" if until is None else clock_text(until, now=now)
        return ReplayJobWait(
            code=WaitCode.BREAKER,
            text=f"{text} A person forced the breaker open until {end}.",
            until=until,
            downstream=name,
        )
    next_probe_at = breaker.next_probe_at if state == BreakerState.OPEN else None
    if next_probe_at is not None and next_probe_at > now:
        text += f" The next probe is at {clock_text(next_probe_at, now=now)}."
    else:
        text += " The next run that arrives at a dispatcher may be a probe."
    return ReplayJobWait(
        code=WaitCode.BREAKER, text=text, downstream=name, next_probe_at=next_probe_at
    )


def _wait_for_runs(job: ReplayJob) -> ReplayJobWait:
    code = WaitCode.CANARY if job.is_in_canary else WaitCode.UNFINISHED_RUNS
    runs = _count(job.unfinished, "run")
    text = f"{_waiting_part(job)} waits for the end of {runs}, of {job.replayed} replayed."
    return ReplayJobWait(code=code, text=text)


def _wait_for_rate(job: ReplayJob, now: datetime) -> ReplayJobWait:
    at = clock_text(job.next_allowed_at, now=now)
    text = f"The rate of {_rate_text(job.rate or 0)} permits the next replay at {at}."
    return ReplayJobWait(code=WaitCode.RATE, text=text, until=job.next_allowed_at)


def _waiting_part(job: ReplayJob) -> str:
    return "The canary" if job.is_in_canary else "The replay job"


def _rate_text(rate: float) -> str:
    """Return replays per second, or the seconds between two replays, with one decimal at most."""
    if rate >= 1:
        return f"{round(rate, 1):g} replays per second"
    return f"one replay in {round(1 / rate, 1):g} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
