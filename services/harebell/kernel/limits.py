"""Limits: how many attempts may start within a span, and when the others come. Pure.

A run is told its place when it is due, so that it comes when there will be room and not before; it
is counted when it starts, and only then. Places keep order, starts keep the limit: what comes
late (its executor was busy) has lost its place and no start of anybody's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.policy import Limit, LimitPer
from harebell.contract.scalars import duration_text
from harebell.contract.ticket import Ticket

LONGEST_SLACK: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one account: the latest places and starts, each as many as its limit has, ascending."""

    places: Sequence[datetime] = ()
    starts: Sequence[datetime] = ()

    def over_at(self, limit: Limit) -> datetime | None:
        """From then on it says nothing any more; None: it never said anything."""
        latest = max((*self.places[-1:], *self.starts[-1:]), default=None)
        return None if latest is None else latest + span_of(limit)


@dataclass(frozen=True, slots=True)
class Told:
    """`may`: it goes on at that moment. If not, it has been put off until then."""

    at: datetime
    may: bool


def account_of(ticket: Ticket, limit: Limit) -> str:
    """What is counted together. A limit of other numbers counts for itself."""
    whom = f"schedule:{ticket.schedule_id}"
    if limit.per is LimitPer.TARGET:
        whom = ticket.downstream
    return f"{ticket.work.tenant}/{limit.starts}/{duration_text(limit.within)}/{whom}"


def slack_of(limit: Limit) -> timedelta:
    """How much later than counted a start may be, and how long it may wait while it has a slot."""
    return min(limit.within / 10, LONGEST_SLACK)


def span_of(limit: Limit) -> timedelta:
    """What is counted close together may start closer still: so it is kept further apart."""
    return limit.within + slack_of(limit)


def place(tally: Tally, limit: Limit, now: datetime) -> tuple[Tally, Told]:
    """A run that is due comes now, or after those that were told before it."""
    at = _free_at(tally.places, limit, now)
    return _placed(tally, limit, at), Told(at, may=at <= now)


def start(tally: Tally, limit: Limit, now: datetime) -> tuple[Tally, Told]:
    """It starts now, or in a moment; else it has been told another place."""
    at = _free_at(tally.starts, limit, now)
    if at - now > slack_of(limit):
        at = max(at, _free_at(tally.places, limit, now))
        return _placed(tally, limit, at), Told(at, may=False)
    return replace(tally, starts=_with(tally.starts, at, limit)), Told(at, may=True)


def _placed(tally: Tally, limit: Limit, at: datetime) -> Tally:
    return replace(tally, places=_with(tally.places, at, limit))


def _free_at(moments: Sequence[datetime], limit: Limit, now: datetime) -> datetime:
    """The first moment from now on with fewer than so many in the span before it."""
    if len(moments) < limit.starts:
        return now
    return max(now, moments[-limit.starts] + span_of(limit))


def _with(moments: Sequence[datetime], at: datetime, limit: Limit) -> tuple[datetime, ...]:
    return tuple(sorted((*moments, at))[-limit.starts :])
