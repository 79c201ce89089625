"""Which deliveries wait for which tickets: a ticket that is in hand is not taken a second time."""

import asyncio
from collections.abc import Iterable, Sequence

from harebell.contract.ids import RunKey
from harebell.messaging.acknowledge import ABANDONED, DONE, Outcome
from harebell.messaging.ticket_batches import TicketHeader


class PendingAck:
    """One delivery: done when the last of its tickets has been published on."""

    def __init__(self, tickets: int) -> None:
        self._open = tickets
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if not tickets:
            self._end(DONE)

    def forwarded(self) -> None:
        self._open -= 1
        if not self._open:
            self._end(DONE)

    def abandon(self) -> None:
        self._end(ABANDONED)

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def _end(self, outcome: Outcome) -> None:
        if not self.outcome.done():  # it is when its handler was cancelled with the session
            self.outcome.set_result(outcome)


class PendingAcks:
    """Tickets in hand, from their arrival until they are published on."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[RunKey, int], list[PendingAck]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, tickets: Sequence[TicketHeader]) -> tuple[PendingAck, list[TicketHeader]]:
        """The receipt for a delivery, and those of its tickets that were not in hand."""
        receipt = PendingAck(len(tickets))
        fresh = []
        for ticket in tickets:
            waiting = self._waiting.setdefault(ticket.identity, [])
            if not waiting:
                fresh.append(ticket)
            waiting.append(receipt)
        return receipt, fresh

    def published(self, tickets: Iterable[TicketHeader]) -> None:
        for receipt in self._give_up(tickets):
            receipt.forwarded()

    def abandon(self, tickets: Iterable[TicketHeader]) -> None:
        for receipt in self._give_up(tickets):
            receipt.abandon()

    def fail(self, tickets: Iterable[TicketHeader], error: Exception) -> None:
        """The handlers get the error, and try their deliveries again."""
        for receipt in self._give_up(tickets):
            receipt.fail(error)

    def _give_up(self, tickets: Iterable[TicketHeader]) -> list[PendingAck]:
        return [receipt for ticket in tickets for receipt in self._waiting.pop(ticket.identity, ())]
