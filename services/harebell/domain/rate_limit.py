"""Limits: how many attempts may start within a span, and when the others come. Pure.

A run is told its place when it is due, so that it comes when there will be room and not before; it
is counted when it starts, and only then. Places keep order, starts keep the limit: what comes
late (its executor was busy) has lost its place and no start of anybody's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.contract.ticket import Ticket
from harebell.contract.types import duration_text

LONGEST_SLACK: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class RateLimitState:
    """Of one account: the latest places and starts, each as many as its limit has, ascending."""

    reservations: Sequence[datetime] = ()
    starts: Sequence[datetime] = ()

    def over_at(self, limit: RateLimit) -> datetime | None:
        """From then on it says nothing any more; None: it never said anything."""
        latest = max((*self.reservations[-1:], *self.starts[-1:]), default=None)
        return None if latest is None else latest + padded_window(limit)


@dataclass(frozen=True, slots=True)
class RateLimitDecision:
    """`may`: it goes on at that moment. If not, it has been put off until then."""

    at: datetime
    is_allowed: bool


def rate_limit_key(ticket: Ticket, limit: RateLimit) -> str:
    """What is counted together. A limit of other numbers counts for itself."""
    whom = f"schedule:{ticket.schedule_id}"
    if limit.per is RateLimitScope.TARGET:
        whom = ticket.downstream
    return f"{ticket.run_spec.tenant}/{limit.starts}/{duration_text(limit.within)}/{whom}"


def start_slack(limit: RateLimit) -> timedelta:
    """How much later than counted a start may be, and how long it may wait while it has a slot."""
    return min(limit.within / 10, LONGEST_SLACK)


def padded_window(limit: RateLimit) -> timedelta:
    """What is counted close together may start closer still: so it is kept further apart."""
    return limit.within + start_slack(limit)


def reserve(
    tally: RateLimitState, limit: RateLimit, now: datetime
) -> tuple[RateLimitState, RateLimitDecision]:
    """A run that is due comes now, or after those that were told before it."""
    at = _free_at(tally.reservations, limit, now)
    return _placed(tally, limit, at), RateLimitDecision(at, is_allowed=at <= now)


def admit(
    tally: RateLimitState, limit: RateLimit, now: datetime
) -> tuple[RateLimitState, RateLimitDecision]:
    """It starts now, or in a moment; else it has been told another place."""
    at = _free_at(tally.starts, limit, now)
    if at - now > start_slack(limit):
        at = max(at, _free_at(tally.reservations, limit, now))
        return _placed(tally, limit, at), RateLimitDecision(at, is_allowed=False)
    return replace(tally, starts=_with(tally.starts, at, limit)), RateLimitDecision(
        at, is_allowed=True
    )


def _placed(tally: RateLimitState, limit: RateLimit, at: datetime) -> RateLimitState:
    return replace(tally, reservations=_with(tally.reservations, at, limit))


def _free_at(moments: Sequence[datetime], limit: RateLimit, now: datetime) -> datetime:
    """The first moment from now on with fewer than so many in the span before it."""
    if len(moments) < limit.starts:
        return now
    return max(now, moments[-limit.starts] + padded_window(limit))


def _with(moments: Sequence[datetime], at: datetime, limit: RateLimit) -> tuple[datetime, ...]:
    return tuple(sorted((*moments, at))[-limit.starts :])
