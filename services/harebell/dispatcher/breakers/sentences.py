"""The sentences about the transitions of a breaker, for chats and for people who read events."""

from datetime import timedelta
from typing import Final, assert_never

from harebell.contract.breakers import BreakerReason, BreakerState
from harebell.contract.types import duration_text
from harebell.dispatcher.breakers.breaker import Breaker
from harebell.domain.time_text import clock_text

_MINUTE: Final = timedelta(minutes=1)


def describe_transition(downstream: str, breaker: Breaker, *, tenant: str | None = None) -> str:
    """Return what happened to the breaker, what follows for runs, and when the next probe is.

    Without `tenant` the breaker is that of all tenants.
    """
    owner = "all tenants" if tenant is None else tenant
    subject, since = f"The circuit breaker of {downstream} for {owner}", breaker.since
    at = clock_text(since, now=since)
    match breaker.state:
        case BreakerState.OPEN:
            next_probe_at = clock_text(since + breaker.config.open_duration, now=since)
            return (
                f"{subject} opened at {at}{_cause(breaker)}. "
                "Runs for it wait without using attempts. "
                f"The next probe is at {next_probe_at}."
            )
        case BreakerState.HALF_OPEN:
            return (
                f"{subject} became half open at {at}. "
                "A few runs probe it, and the other runs wait without using attempts."
            )
        case BreakerState.CLOSED:
            return f"{subject} closed at {at}. The waiting runs start within 30 s."
        case _:
            assert_never(breaker.state)


def _cause(breaker: Breaker) -> str:
    match breaker.reason:
        case BreakerReason.FAILURE_RATIO:
            window = breaker.config.window
            period = "minute" if window == _MINUTE else duration_text(window)
            return f": {breaker.failed} of {breaker.attempts} attempts failed in the last {period}"
        case BreakerReason.CONSECUTIVE_FAILURES:
            return f": the last {breaker.failed} attempts failed"
        case BreakerReason.PROBE_FAILED:
            return " again: a probe failed"
        case BreakerReason.SEVERAL_TENANTS:
            return f": the breakers of {breaker.failed} tenants are open"
        case None:
            return ""
        case _:
            assert_never(breaker.reason)
