"""The release queue: pure rules for the time at which a ticket leaves the dispatcher."""

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

MAX_QUEUED_WAIT: Final = timedelta(seconds=10)  # a ticket due later goes to a shorter delay queue
SHORTEST_LEAD: Final = timedelta(milliseconds=250)
RELEASE_RATE: Final = 10_000  # tickets per second that an executor can claim
LEAD_STEP: Final = timedelta(milliseconds=50)  # between two leads that the queue considers
MAX_QUEUED_TICKETS: Final = 100_000
MAX_OPEN_DELIVERIES: Final = 3_000  # ticket batches with unpublished tickets

POOL_DEADLINE: Final = timedelta(hours=1)  # after the due time of a ticket without a pool
NO_SUCH_POOL: Final = "no_such_pool"


class ArrivalDecision(Enum):
    """The next step of a ticket that arrives."""

    QUEUE = auto()
    RELEASE = auto()  # at once, because its lead has begun
    DELAY = auto()  # through a shorter delay queue


def decide_on_arrival(wait: timedelta, *, is_full: bool) -> ArrivalDecision:
    """Return the next step of a ticket that is due after `wait`.

    `is_full` is true above MAX_QUEUED_TICKETS or MAX_OPEN_DELIVERIES. Delay queues then take every
    ticket that fits into one.
    """
    if wait <= SHORTEST_LEAD:
        return ArrivalDecision.RELEASE
    if (is_full or wait > MAX_QUEUED_WAIT) and ttl_for(wait) is not None:
        return ArrivalDecision.DELAY
    return ArrivalDecision.QUEUE


def is_past_pool_deadline(due_at: datetime, now: datetime) -> bool:
    """Return whether a ticket without a pool becomes a dead letter."""
    return now - due_at > POOL_DEADLINE


# The due time, the negative priority, the position among the tickets of its tenant with both, the
# order of arrival, the ticket.
_Entry: TypeAlias = tuple[datetime, int, int, int, TicketHeader]

# Each lead, with the number of due tickets that may leave later at RELEASE_RATE and still be early.
_LEADS: Final = tuple(
    (SHORTEST_LEAD + extra, int(RELEASE_RATE * extra.total_seconds()))
    for extra in (n * LEAD_STEP for n in range(1 + (LONGEST_LEAD - SHORTEST_LEAD) // LEAD_STEP))
)


class ReleaseQueue:
    """A queue of tickets, ordered by due time, that releases each ticket at its lead.

    If many tickets are due together, their lead is longer, so that executors can claim all of them
    before. Simultaneous tickets leave at RELEASE_RATE, the highest priority first, and within one
    priority the tenants alternate. Tickets that are claimed at their due time have the shortest
    lead.
    """

    def __init__(self) -> None:
        self._far: list[_Entry] = []  # a heap
        self._near: list[_Entry] = []  # due within the longest lead, sorted
        self._claimed_when_due: list[_Entry] = []  # a heap
        self._arrivals = count()  # the order of tickets with equal due times
        # By due time, priority and tenant.
        self._simultaneous: Counter[tuple[datetime, int, str]] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._lists()))

    def push(self, ticket: TicketHeader) -> None:
        group = ticket.due_at, ticket.priority, ticket.tenant
        heap = self._claimed_when_due if ticket.claim_at_due_time else self._far
        position = self._simultaneous[group]
        heappush(heap, (ticket.due_at, -ticket.priority, position, next(self._arrivals), ticket))
        self._simultaneous[group] += 1

    def due(self, now: datetime) -> list[TicketHeader]:
        """Remove and return the tickets whose lead has begun, in the order of their due times."""
        while self._far and self._far[0][0] - LONGEST_LEAD <= now:
            insort(self._near, heappop(self._far))
        number = max(self._due_before(now + lead) - later for lead, later in _LEADS)
        released = self._near[:number]
        del self._near[:number]
        while self._claimed_when_due and self._claimed_when_due[0][0] - SHORTEST_LEAD <= now:
            released.append(heappop(self._claimed_when_due))
        return [self._removed(entry) for entry in released]

    def drain(self) -> Iterator[TicketHeader]:
        """Remove and return all tickets."""
        for entries in self._lists():
            while entries:
                yield self._removed(entries.pop())

    def _lists(self) -> tuple[list[_Entry], ...]:
        return self._near, self._far, self._claimed_when_due

    def _due_before(self, time: datetime) -> int:
        return bisect_right(self._near, time, key=itemgetter(0))

    def _removed(self, entry: _Entry) -> TicketHeader:
        ticket = entry[-1]
        group = ticket.due_at, ticket.priority, ticket.tenant
        self._simultaneous[group] -= 1
        if not self._simultaneous[group]:
            del self._simultaneous[group]
        return ticket
