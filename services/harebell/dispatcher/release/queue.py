"""When a ticket leaves the dispatcher: the rules, and the tickets that wait for them. Pure."""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from typing import Final, TypeAlias

from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import LONGEST_LEAD, ttl_for

MAX_QUEUED_WAIT: Final = timedelta(seconds=10)  # what is due later goes on through a shorter tier
SHORTEST_LEAD: Final = timedelta(milliseconds=250)
RELEASE_RATE: Final = 10_000  # tickets a second: what an executor claims with ease
GRAIN: Final = timedelta(milliseconds=50)  # between the leads that are looked at
MAX_QUEUED_TICKETS: Final = 100_000  # tickets
MAX_DELIVERIES: Final = 3_000  # bundles whose tickets are not all released

POOL_DEADLINE: Final = timedelta(hours=1)  # past due, that a pool may be missing
NO_SUCH_POOL: Final = "no_such_pool"


class ArrivalDecision(Enum):
    """What becomes of a ticket that came."""

    QUEUE = auto()
    RELEASE = auto()  # at once: it came later than its lead
    DELAY = auto()  # through a shorter tier


def decide_on_arrival(wait: timedelta, *, full: bool) -> ArrivalDecision:
    """`full`: too much is held, so whatever a tier can take goes there."""
    if wait <= SHORTEST_LEAD:
        return ArrivalDecision.RELEASE
    if (full or wait > MAX_QUEUED_WAIT) and ttl_for(wait) is not None:
        return ArrivalDecision.DELAY
    return ArrivalDecision.QUEUE


def is_past_pool_deadline(due_at: datetime, now: datetime) -> bool:
    """Whether a ticket that no pool takes has circled for long enough."""
    return now - due_at > POOL_DEADLINE


_Entry: TypeAlias = tuple[
    datetime, int, int, TicketHeader
]  # due, its tenant's turn, the how manieth

# Of what is due within a lead, so many may leave later, at RELEASE_RATE, and be in time.
_LEADS: Final = tuple(
    (SHORTEST_LEAD + later, int(RELEASE_RATE * later.total_seconds()))
    for later in (n * GRAIN for n in range(1 + (LONGEST_LEAD - SHORTEST_LEAD) // GRAIN))
)


class ReleaseQueue:
    """Tickets until their release: so early that all can be claimed before they are due, no more.

    A crowd of one instant leaves evenly over the time that it takes, its tenants by turns. What is
    not claimed before its instant leaves by the shortest lead, whatever its number.
    """

    def __init__(self) -> None:
        self._far: list[_Entry] = []  # a heap
        self._near: list[_Entry] = []  # due within the longest lead, sorted
        self._waiting: list[_Entry] = []  # a heap, of what is claimed on its instant
        self._pushed = count()  # decides between equals: first come, first gone
        self._held: Counter[tuple[datetime, str]] = Counter()  # of each instant and tenant

    def __len__(self) -> int:
        return sum(map(len, self._all()))

    def push(self, ticket: TicketHeader) -> None:
        of = ticket.due_at, ticket.tenant
        heap = self._waiting if ticket.claim_at_due_time else self._far
        heappush(heap, (ticket.due_at, self._held[of], next(self._pushed), ticket))
        self._held[of] += 1

    def due(self, now: datetime) -> list[TicketHeader]:
        """Take out what is to be released now, in the order of due times."""
        while self._far and self._far[0][0] - LONGEST_LEAD <= now:
            insort(self._near, heappop(self._far))
        number = max(self._due_by(now + lead) - later for lead, later in _LEADS)
        released = self._near[:number]
        del self._near[:number]
        while self._waiting and self._waiting[0][0] - SHORTEST_LEAD <= now:
            released.append(heappop(self._waiting))
        return [self._without(entry) for entry in released]

    def drain(self) -> Iterator[TicketHeader]:
        """Take out all, whenever it is due."""
        for held in self._all():
            while held:
                yield self._without(held.pop())

    def _all(self) -> tuple[list[_Entry], ...]:
        return self._near, self._far, self._waiting

    def _due_by(self, moment: datetime) -> int:
        return bisect_right(self._near, moment, key=itemgetter(0))

    def _without(self, entry: _Entry) -> TicketHeader:
        ticket = entry[-1]
        of = ticket.due_at, ticket.tenant
        self._held[of] -= 1
        if not self._held[of]:
            del self._held[of]
        return ticket
