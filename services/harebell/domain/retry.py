"""The retry rule: the next step after a failed attempt, for the executor and the rescuer.

A failed probe of a breaker does not count for `max_attempts`. MAX_FAILED_PROBES bounds the failed
probes of one run, so that no run has attempts without end.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.contract.types import ceil_ms

MAX_EXPONENT: Final = 64  # 100 ** 64 is 1e128, which a float can represent
ADDITIVE_SHARE: Final = 0.25  # the longest additive jitter, as a part of the wait
MAX_FAILED_PROBES: Final = 100  # of one replay number of a run; further failed probes count
MAX_ERROR_LENGTH: Final = 1024  # characters of a stored failure message

NO_WAIT: Final = timedelta(0)

ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"
LEASE_EXPIRED: Final = "lease_expired"
EXPIRED: Final = "expired"
TIMEOUT: Final = "timeout"  # the attempt did not end within the timeout of its schedule
# The codes of failures that no worker may report.
RESERVED_CODES: Final = frozenset({ATTEMPTS_EXHAUSTED, LEASE_EXPIRED, EXPIRED, TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed attempt.

    `immediate` is true for a failure that a wait cannot avoid, so the retry has no backoff.
    `own` is the number of leading characters of the message that the target has not sent.
    """

    code: str = field(kw_only=False)
    message: str = field(kw_only=False)
    retryable: bool = True
    retry_after: timedelta | None = None
    immediate: bool = False
    http_status: int | None = None
    own: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to start the next attempt at a given time."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Dead:
    """The decision to dead-letter the run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The decision to expire the run, because its next attempt would be too late."""


Decision: TypeAlias = Retry | Dead | Expired


def decide(
    policy: RetryPolicy,
    attempt: int,
    failure: Failure,
    *,
    now: datetime,
    random_fraction: float,
    expires_at: datetime | None = None,
    failed_probes: int = 0,
    is_failed_probe: bool = False,
    min_wait: timedelta = NO_WAIT,
) -> Decision:
    """Return the next step after a failed attempt.

    `attempt` counts from 1 within one replay number, and `failed_probes` of the earlier attempts
    do not count for `max_attempts`. With `is_failed_probe`, this attempt does not count either.
    The wait grows with every attempt, so that other runs probe the downstream before this one.
    `random_fraction` in [0, 1) sets the jitter. No wait is shorter than `min_wait`.
    """
    if failure.code == EXPIRED:
        return Expired()
    if not failure.retryable:
        return Dead(failure.code)
    if not is_failed_probe and attempt - failed_probes >= policy.max_attempts:
        return Dead(ATTEMPTS_EXHAUSTED)
    wait = backoff_wait(policy.backoff, attempt, random_fraction)
    wait = NO_WAIT if failure.immediate else max(wait, failure.retry_after or NO_WAIT)
    wait = max(wait, min_wait)
    at = now if failure.immediate and not wait else ceil_ms(now + wait)
    if expires_at is not None and at >= expires_at:
        return Expired()
    return Retry(at)


def is_uncounted(failure: Failure, failed_probes: int) -> bool:
    """Return whether the failure of a probe does not count for `max_attempts`.

    `failed_probes` is the number of earlier ones. A failure without a retry ends its run anyway.
    """
    return failure.retryable and failed_probes < MAX_FAILED_PROBES


def no_min_wait(_: str) -> None:
    """Return that no tenant has a minimum wait between the attempts of a run."""


def backoff_wait(backoff: Backoff, attempt: int, random_fraction: float) -> timedelta:
    """Return base * factor ** (attempt - 1) with jitter, at most cap.

    The waits of additive jitter therefore spread less and less as they approach the cap.
    MAX_EXPONENT bounds the power before the multiplication, so that no float overflows.
    """
    base, cap = backoff.base.total_seconds(), backoff.cap.total_seconds()
    full = min(base * backoff.factor ** min(attempt - 1, MAX_EXPONENT), cap)
    match backoff.jitter:
        case Jitter.NONE:
            share = 1.0
        case Jitter.EQUAL:
            share = 0.5 + random_fraction / 2
        case Jitter.FULL:
            share = random_fraction
        case Jitter.ADDITIVE:
            share = 1 + ADDITIVE_SHARE * random_fraction
        case _:
            assert_never(backoff.jitter)
    return min(timedelta(seconds=full * share), backoff.cap)
