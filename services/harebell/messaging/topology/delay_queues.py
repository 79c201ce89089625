"""Delay queues: permanent queues whose TTLs grow by the fourth root of two. Pure."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from harebell.contract.amqp_names import DELAY, DUE
from harebell.messaging.topology.declarations import UNLIMITED, Binding, Queue, Topology

SHORTEST_MS: Final = 1_500
LONGEST_MS: Final = 900_000  # runs that wait longer stay in PostgreSQL
STEPS_PER_DOUBLING: Final = 4
LONGEST_LEAD: Final = timedelta(seconds=2)
TTL_DIGITS: Final = len(str(LONGEST_MS))  # in the names of the queues
MARGIN: Final = LONGEST_LEAD + timedelta(milliseconds=150)  # 250 batches expire within 60 ms
LONGEST_DELAY: Final = timedelta(milliseconds=LONGEST_MS) + MARGIN


def _delay_ttls_ms() -> tuple[int, ...]:
    steps = (round(SHORTEST_MS * 2 ** (n / STEPS_PER_DOUBLING)) for n in range(64))
    return (*(ms for ms in steps if ms < LONGEST_MS), LONGEST_MS)


DELAY_TTLS_MS: Final = _delay_ttls_ms()  # ascending
# A deferred ticket passes through this delay queue again and again.
REQUEUE_TTL_MS: Final = min(DELAY_TTLS_MS, key=lambda ms: abs(ms - 5_000))


def ttl_for(wait: timedelta) -> int | None:
    """Return the longest TTL in milliseconds that ends at least `MARGIN` before the wait ends.

    Return None if every TTL is too long. The message then goes to the dispatcher at once.
    """
    ms = (wait - MARGIN) / timedelta(milliseconds=1)
    count = bisect_right(DELAY_TTLS_MS, ms)
    return DELAY_TTLS_MS[count - 1] if count else None


class Tier(StrEnum):
    """The place where a run waits for its due time."""

    IMMEDIATE = "immediate"  # the dispatcher
    HOT = "hot"  # a delay queue
    COLD = "cold"  # PostgreSQL


@dataclass(frozen=True, slots=True)
class DelayRoute:
    """The tier of a waiting run and the reason. `ttl_ms` is set for a delay queue."""

    tier: Tier
    reason: str
    ttl_ms: int | None = None


COLD_ROUTE: Final = DelayRoute(
    Tier.COLD, "The run is due after the horizon and waits in PostgreSQL."
)


def route(due_at: datetime, now: datetime, *, horizon: timedelta | None = None) -> DelayRoute:
    """Return the route of a run that is due at `due_at`.

    A run that is due after the horizon waits in PostgreSQL, but never without a horizon.
    """
    wait = due_at - now
    if horizon is not None and wait > horizon:
        return COLD_ROUTE
    if ttl_ms := ttl_for(wait):
        return DelayRoute(Tier.HOT, f"The run waits in {delay_queue_name(ttl_ms)}.", ttl_ms)
    if wait > timedelta(0):
        reason = "The run is due sooner than the shortest delay queue releases a ticket."
    else:
        reason = "The run is overdue."
    return DelayRoute(Tier.IMMEDIATE, reason)


def delay_queue_name(ms: int) -> str:
    """Return the name of the queue with this TTL, such as `harebell.delay.001500`."""
    return f"{DELAY}.{delay_queue_key(ms)}"


def delay_queue_key(ms: int) -> str:
    """Return the TTL with leading zeros, so that the order of the names is that of the TTLs."""
    return f"{ms:0{TTL_DIGITS}d}"


def delay_topology() -> Topology:
    """Return the delay queues and their bindings.

    The argument `x-expires` would delete queues with their messages.
    The property `expiration` of a message would delay the messages behind it.
    """
    queues = tuple(
        Queue(delay_queue_name(ms), dead_letter_exchange=DUE, ttl_ms=ms, delivery_limit=UNLIMITED)
        for ms in DELAY_TTLS_MS
    )
    bindings = tuple(
        Binding(DELAY, delay_queue_key(ms), delay_queue_name(ms)) for ms in DELAY_TTLS_MS
    )
    return Topology(queues=queues, bindings=bindings)
