"""The unclaimed tickets of a claimer: received work batches, and the order of their claims."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from harebell.contract.ticket import Ticket
from harebell.executor.model.priority_queue import PriorityQueue

MAX_ROWS: Final = 250  # of a statement; more rows would delay due starts of other lanes


@dataclass(slots=True, eq=False, kw_only=True)
class ClaimRequest:
    """One work batch that waits for its claims.

    `done` becomes True when the delivery may be acknowledged.
    """

    tickets: list[Ticket]
    done: asyncio.Future[bool]
    earliest: datetime = field(init=False)
    _unfinished: int = field(init=False)  # tickets whose next step is unknown

    def __post_init__(self) -> None:
        self.earliest = min(ticket.due_at for ticket in self.tickets)
        self._unfinished = len(self.tickets)

    def finish(self, tickets: int) -> None:
        """Count tickets that are claimed or can never be claimed. The last one ends the request."""
        self._unfinished -= tickets
        if not self._unfinished:
            self._end(is_claimed=True)

    def abandon(self) -> None:
        self._end(is_claimed=False)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def _end(self, *, is_claimed: bool) -> None:
        if not self.done.done():  # the loss of a consumer cancels its requests
            self.done.set_result(is_claimed)


# The tickets of one request that one statement claims.
Portion: TypeAlias = tuple[ClaimRequest, list[Ticket]]


class UnclaimedTickets:
    """The tickets that wait for their claims.

    While the lane can claim all of them, whole work batches leave in the order of their arrival,
    because ordering costs CPU for each ticket. Otherwise they leave in the order of starts: due
    tickets by start rank, then the others by due time. How many requests there are is bounded by
    the prefetch of the consumer, and how many tickets each has by the size of work batches.
    """

    def __init__(self) -> None:
        self._unordered: deque[ClaimRequest] = deque()
        self._ordered: PriorityQueue[tuple[ClaimRequest, Ticket]] = PriorityQueue()

    def __bool__(self) -> bool:
        return bool(self._unordered) or len(self._ordered) > 0

    def add(self, request: ClaimRequest) -> None:
        self._unordered.append(request)

    def has_few(self) -> bool:
        """Return whether more work batches can join the statement of all waiting ones."""
        return not self._ordered and self._unordered_tickets() < MAX_ROWS

    def earliest(self) -> datetime:
        """Return the earliest due time of the requests without an order, which must not be none."""
        return min(request.earliest for request in self._unordered)

    def take(self, capacity: int, now: datetime) -> list[Portion]:
        """Remove and return the tickets to claim next, up to the capacity and MAX_ROWS.

        If the lane can claim every ticket, return whole requests, at least one.
        """
        if self._ordered or self._unordered_tickets() > capacity:
            return self._take_ordered(lambda taken: taken < min(capacity, MAX_ROWS), now)
        portions: list[Portion] = []
        rows = 0
        while self._unordered:
            rows += len(self._unordered[0].tickets)
            if portions and rows > MAX_ROWS:
                break
            request = self._unordered.popleft()
            portions.append((request, request.tickets))
        return portions

    def take_urgent(self, limit: int, before: datetime | None, now: datetime) -> list[Portion]:
        """Remove and return at most `limit` due tickets whose start rank is below `before`."""
        limit = min(limit, MAX_ROWS)
        return self._take_ordered(lambda taken: taken < limit and self.has_urgent(before, now), now)

    def has_urgent(self, before: datetime | None, now: datetime) -> bool:
        """Return whether a due ticket has a start rank below `before`, or is due if it is None."""
        self._order()
        rank = self._ordered.first_rank(now)
        return rank is not None and (before is None or rank < before)

    def next_change(self, now: datetime) -> datetime | None:
        """Return the next time at which a waiting ticket can become urgent."""
        self._order()
        return self._ordered.next_change(now)

    def discard_ended(self) -> None:
        """Remove the tickets of requests that have failed or whose consumer is lost."""
        live = [request for request in self._unordered if not request.done.done()]
        self._unordered = deque(live)
        self._ordered.remove(lambda waiting: waiting[0].done.done())

    def abandon(self) -> None:
        """Remove all tickets and abandon their requests."""
        self._order()
        for request, _ in self._ordered.remove(lambda _: True):
            request.abandon()

    def _take_ordered(self, has_more: Callable[[int], bool], now: datetime) -> list[Portion]:
        self._order()
        taken: dict[ClaimRequest, list[Ticket]] = {}
        count = 0
        while self._ordered and has_more(count):
            request, ticket = self._ordered.pop(lambda: now)
            taken.setdefault(request, []).append(ticket)
            count += 1
        return list(taken.items())

    def _unordered_tickets(self) -> int:
        return sum(len(request.tickets) for request in self._unordered)

    def _order(self) -> None:
        for request in self._unordered:
            for ticket in request.tickets:
                self._ordered.insert((request, ticket), ticket.due_at, ticket.priority)
        self._unordered.clear()
