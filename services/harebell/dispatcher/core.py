"""When a ticket leaves the dispatcher: the rules, and the tickets that wait for them. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count
from typing import Final

from harebell.kernel.delay import LONGEST_LEAD, tier_for
from harebell.kernel.routing import Routed, by_turns

HOLD: Final = timedelta(seconds=10)  # what is due later goes on through a shorter tier
SHORTEST_LEAD: Final = timedelta(milliseconds=250)
RELEASE_RATE: Final = 25_000  # tickets a second that executors claim
MAX_HELD: Final = 100_000  # tickets
MAX_DELIVERIES: Final = 3_000  # bundles whose tickets are not all released

GIVE_UP: Final = timedelta(hours=1)  # past due, that a pool may be missing
NO_SUCH_POOL: Final = "no_such_pool"


class Arrival(Enum):
    """What becomes of a ticket that came."""

    HOLD = auto()
    RELEASE = auto()  # at once: it came later than its lead
    DELAY = auto()  # through a shorter tier


def lead_for(backlog: int) -> timedelta:
    """How long before it is due a ticket leaves, when so many fall due together."""
    needed = timedelta(seconds=backlog / RELEASE_RATE)
    return min(max(needed, SHORTEST_LEAD), LONGEST_LEAD)


def on_arrival(wait: timedelta, *, lead: timedelta, full: bool) -> Arrival:
    """`full`: too much is held, so whatever a tier can take goes there."""
    if wait <= lead:
        return Arrival.RELEASE
    if (full or wait > HOLD) and tier_for(wait) is not None:
        return Arrival.DELAY
    return Arrival.HOLD


def is_given_up(due_at: datetime, now: datetime) -> bool:
    """Whether a ticket that no pool takes has circled for long enough."""
    return now - due_at > GIVE_UP


class ReleaseHeap:
    """Tickets until their release. What falls due within the longest lead is due together."""

    def __init__(self) -> None:
        self._far: list[tuple[datetime, int, Routed]] = []
        self._near: list[tuple[datetime, int, Routed]] = []
        self._pushed = count()  # decides between tickets of one instant: first come, first gone

    def __len__(self) -> int:
        return len(self._far) + len(self._near)

    @property
    def lead(self) -> timedelta:
        """Of what was near at the last look."""
        return lead_for(len(self._near))

    def push(self, ticket: Routed) -> None:
        heappush(self._far, (ticket.due_at, next(self._pushed), ticket))

    def due(self, now: datetime) -> Sequence[Routed]:
        """Take out what is to be released now: by turns of tenants, in the order of due times."""
        while self._far and self._far[0][0] - LONGEST_LEAD <= now:
            heappush(self._near, heappop(self._far))
        until = now + self.lead
        released = []
        while self._near and self._near[0][0] <= until:
            released.append(heappop(self._near)[2])
        return by_turns(released)

    def drain(self) -> Iterator[Routed]:
        """Take out all, whenever it is due."""
        for heap in (self._near, self._far):
            while heap:
                yield heap.pop()[2]
