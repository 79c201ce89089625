"""Pending acknowledgements: deliveries that wait until all their tickets are published.

A ticket that another delivery already contains is registered, and not queued a second time.
"""

import asyncio
from collections.abc import Iterable, Sequence

from harebell.contract.ids import RunKey
from harebell.messaging.acknowledge import ABANDONED, DONE, Outcome
from harebell.messaging.ticket_batches import TicketHeader


class PendingAck:
    """One delivery. Its outcome is `DONE` after the publication of its last ticket."""

    def __init__(self, tickets: int) -> None:
        self._unpublished = tickets
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if not tickets:
            self._end(DONE)

    def count_published(self) -> None:
        self._unpublished -= 1
        if not self._unpublished:
            self._end(DONE)

    def abandon(self) -> None:
        self._end(ABANDONED)

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def _end(self, outcome: Outcome) -> None:
        if not self.outcome.done():  # a lost connection cancels the handler and its future
            self.outcome.set_result(outcome)


class PendingAcks:
    """The unpublished tickets of a dispatcher, each with the deliveries that contain it."""

    def __init__(self) -> None:
        self._deliveries: dict[tuple[RunKey, int], list[PendingAck]] = {}

    def __len__(self) -> int:
        return len(self._deliveries)

    def register(self, tickets: Sequence[TicketHeader]) -> tuple[PendingAck, list[TicketHeader]]:
        """Return the pending ack of a delivery, and its tickets that were not registered before."""
        pending = PendingAck(len(tickets))
        new_tickets = []
        for ticket in tickets:
            deliveries = self._deliveries.setdefault(ticket.identity, [])
            if not deliveries:
                new_tickets.append(ticket)
            deliveries.append(pending)
        return pending, new_tickets

    def published(self, tickets: Iterable[TicketHeader]) -> None:
        for pending in self._remove(tickets):
            pending.count_published()

    def abandon(self, tickets: Iterable[TicketHeader]) -> None:
        for pending in self._remove(tickets):
            pending.abandon()

    def fail(self, tickets: Iterable[TicketHeader], error: Exception) -> None:
        """Raise the error in the handlers of the deliveries, which then retry."""
        for pending in self._remove(tickets):
            pending.fail(error)

    def _remove(self, tickets: Iterable[TicketHeader]) -> list[PendingAck]:
        return [
            pending for ticket in tickets for pending in self._deliveries.pop(ticket.identity, ())
        ]
