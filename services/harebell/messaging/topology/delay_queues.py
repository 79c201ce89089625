"""How a wait is made on the bus: permanent queues whose uniform TTLs grow by a quarter octave."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from harebell.contract.amqp_names import DELAY, DUE
from harebell.messaging.topology.declarations import UNLIMITED, Binding, Queue, Topology

SHORTEST_MS: Final = 1_500
LONGEST_MS: Final = 900_000  # what waits longer rests in PostgreSQL
STEPS_PER_OCTAVE: Final = 4
LONGEST_LEAD: Final = timedelta(seconds=2)  # before due, that a bundle may leave for its executor
MARGIN: Final = LONGEST_LEAD + timedelta(milliseconds=150)  # 250 bundles leave a tier within 60 ms
LONGEST_DELAY: Final = timedelta(milliseconds=LONGEST_MS) + MARGIN


def _tiers() -> tuple[int, ...]:
    steps = (round(SHORTEST_MS * 2 ** (n / STEPS_PER_OCTAVE)) for n in range(64))
    return (*(ms for ms in steps if ms < LONGEST_MS), LONGEST_MS)


DELAY_TTLS_MS: Final = _tiers()  # milliseconds, ascending
REQUEUE_TTL_MS: Final = min(
    DELAY_TTLS_MS, key=lambda ms: abs(ms - 5_000)
)  # of what is looked at again and again


def ttl_for(wait: timedelta) -> int | None:
    """The longest tier that lets a message out at least MARGIN early; None: straight to due."""
    ms = (wait - MARGIN) / timedelta(milliseconds=1)
    place = bisect_right(DELAY_TTLS_MS, ms)
    return DELAY_TTLS_MS[place - 1] if place else None


class Tier(StrEnum):
    """Where a run waits for its time."""

    IMMEDIATE = "immediate"  # at the dispatcher: no tier is so short
    HOT = "hot"  # in a delay tier
    COLD = "cold"  # in PostgreSQL


@dataclass(frozen=True, slots=True)
class DelayRoute:
    """`tier` in milliseconds, of what waits in one."""

    tier: Tier
    reason: str
    ttl_ms: int | None = None


COLD_ROUTE: Final = DelayRoute(Tier.COLD, "it rests in PostgreSQL until its time is near")


def route(due_at: datetime, now: datetime, *, horizon: timedelta | None = None) -> DelayRoute:
    """`reach`: what is due later rests; None: it is handed to the broker in any case."""
    wait = due_at - now
    if horizon is not None and wait > horizon:
        return COLD_ROUTE
    if tier := ttl_for(wait):
        return DelayRoute(Tier.HOT, f"it waits in {delay_queue_name(tier)}", tier)
    sooner = "it is due sooner than the shortest delay tier lets anything out"
    return DelayRoute(Tier.IMMEDIATE, sooner if wait > timedelta(0) else "it is overdue")


def delay_queue_name(ms: int) -> str:
    return f"{DELAY}.{ms}"


def delay_queue_key(ms: int) -> str:
    return str(ms)


def delay_topology() -> Topology:
    """Never `x-expires`, never a message's own `expiration`: both lose or hold up messages."""
    queues = tuple(
        Queue(delay_queue_name(ms), dead_letter_exchange=DUE, ttl_ms=ms, delivery_limit=UNLIMITED)
        for ms in DELAY_TTLS_MS
    )
    bindings = tuple(
        Binding(DELAY, delay_queue_key(ms), delay_queue_name(ms)) for ms in DELAY_TTLS_MS
    )
    return Topology(queues=queues, bindings=bindings)
