"""The rate limit rule: at most a number of attempt starts within a time window.

A due run gets a reservation, so that it returns when a start is possible; what counts is the start
of an attempt. Reservations keep the order of runs, and starts keep the limit: if a run returns
late, it loses its reservation and takes no start of another run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.contract.ticket import Ticket
from harebell.contract.types import duration_text

MAX_START_SLACK: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class RateLimitState:
    """The latest reservations and starts of one key, ascending, at most `starts` of each."""

    reservations: Sequence[datetime] = ()
    starts: Sequence[datetime] = ()

    def expires_at(self, limit: RateLimit) -> datetime | None:
        """Return the time after which the state has no effect, or None for an empty state."""
        latest = max((*self.reservations[-1:], *self.starts[-1:]), default=None)
        return None if latest is None else latest + padded_window(limit)


@dataclass(frozen=True, slots=True)
class RateLimitDecision:
    """The start time of a run. If `is_allowed` is false, the run has a reservation at that time."""

    at: datetime
    is_allowed: bool


def rate_limit_key(ticket: Ticket, limit: RateLimit) -> str:
    """Return the key of the state. Limits with different numbers have different keys."""
    scope = f"schedule:{ticket.schedule_id}"
    if limit.per is RateLimitScope.TARGET:
        scope = ticket.downstream
    return f"{ticket.run_spec.tenant}/{limit.starts}/{duration_text(limit.within)}/{scope}"


def start_slack(limit: RateLimit) -> timedelta:
    """Return how much later than its counted time an attempt may start within its slot."""
    return min(limit.within / 10, MAX_START_SLACK)


def padded_window(limit: RateLimit) -> timedelta:
    """Return the window plus the slack, because two starts may be closer than counted."""
    return limit.within + start_slack(limit)


def reserve(
    state: RateLimitState, limit: RateLimit, now: datetime
) -> tuple[RateLimitState, RateLimitDecision]:
    """Reserve a start time for a due run, after the reservations of earlier runs."""
    at = _next_free(state.reservations, limit, now)
    return _with_reservation(state, limit, at), RateLimitDecision(at, is_allowed=at <= now)


def admit(
    state: RateLimitState, limit: RateLimit, now: datetime
) -> tuple[RateLimitState, RateLimitDecision]:
    """Count a start now or within the slack. Otherwise reserve a later start time."""
    at = _next_free(state.starts, limit, now)
    if at - now > start_slack(limit):
        at = max(at, _next_free(state.reservations, limit, now))
        return _with_reservation(state, limit, at), RateLimitDecision(at, is_allowed=False)
    counted = replace(state, starts=_with(state.starts, at, limit))
    return counted, RateLimitDecision(at, is_allowed=True)


def _with_reservation(state: RateLimitState, limit: RateLimit, at: datetime) -> RateLimitState:
    return replace(state, reservations=_with(state.reservations, at, limit))


def _next_free(times: Sequence[datetime], limit: RateLimit, now: datetime) -> datetime:
    """Return the first time from `now` with fewer than `starts` times in the window before it."""
    if len(times) < limit.starts:
        return now
    return max(now, times[-limit.starts] + padded_window(limit))


def _with(times: Sequence[datetime], at: datetime, limit: RateLimit) -> tuple[datetime, ...]:
    return tuple(sorted((*times, at))[-limit.starts :])
