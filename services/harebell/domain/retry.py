"""What becomes of a run whose attempt failed: the one rule, for executors and sweeps alike."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.contract.types import ceil_ms

MAX_EXPONENT: Final = 64  # factor ** 64 overflows nothing that a float can hold (100 ** 64 = 1e128)
MAX_ERROR: Final = 1024  # characters of a failure's message that are kept

ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"
LEASE_EXPIRED: Final = "lease_expired"
EXPIRED: Final = "expired"  # its time had passed when it was to begin


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt. `immediate`: nothing that a wait would spare, so no backoff."""

    code: str
    message: str
    retryable: bool = True
    retry_after: timedelta | None = None
    immediate: bool = False
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    at: datetime


@dataclass(frozen=True, slots=True)
class Dead:
    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """It was found too late to begin, or the next attempt would be too late to be of use."""


Decision: TypeAlias = Retry | Dead | Expired


def decide(
    policy: RetryPolicy,
    attempt: int,
    failure: Failure,
    now: datetime,
    *,
    dice: float,
    expires_at: datetime | None = None,
) -> Decision:
    """`attempt` counts from 1 within its series; `dice` in [0, 1) is drawn by the shell."""
    if failure.code == EXPIRED:
        return Expired()
    if not failure.retryable:
        return Dead(failure.code)
    if attempt >= policy.max_attempts:
        return Dead(ATTEMPTS_EXHAUSTED)
    wait = _wait(policy.backoff, attempt, failure, dice)
    at = now if failure.immediate else ceil_ms(now + wait)
    if expires_at is not None and at >= expires_at:
        return Expired()
    return Retry(at)


def _wait(backoff: Backoff, attempt: int, failure: Failure, dice: float) -> timedelta:
    return max(backoff_wait(backoff, attempt, dice), failure.retry_after or timedelta(0))


def backoff_wait(backoff: Backoff, attempt: int, dice: float) -> timedelta:
    """Base * factor^(attempt-1), at most cap, then jitter; the cap bounds the float first."""
    base, cap = backoff.base.total_seconds(), backoff.cap.total_seconds()
    full = min(base * backoff.factor ** min(attempt - 1, MAX_EXPONENT), cap)
    match backoff.jitter:
        case Jitter.NONE:
            share = 1.0
        case Jitter.EQUAL:
            share = 0.5 + dice / 2
        case Jitter.FULL:
            share = dice
    return timedelta(seconds=full * share)
