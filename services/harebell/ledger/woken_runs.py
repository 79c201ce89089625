"""Runs that wait for a slot of their schedule or label, which the end of another run wakes."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from uuid import UUID

import asyncpg

from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.domain.concurrency import Label
from harebell.domain.concurrency import next_waiting as next_waiting_for_label
from harebell.domain.overlap import next_waiting
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.runs import label_slots, overlap
from harebell.storage.runs.staging import rebuild_tickets


def labels_of(tickets: Iterable[Ticket]) -> set[Label]:
    """Return the concurrency labels of the tickets."""
    return {
        Label(ticket.run_spec.tenant, concurrency.label)
        for ticket in tickets
        if (concurrency := ticket.run_spec.concurrency) is not None
    }


async def wake_next(
    connection: asyncpg.Connection,
    policies: Mapping[UUID, Overlap],
    now: datetime,
    *,
    min_ticket_age: float = 0,
) -> list[TicketHeader]:
    """Wake the next waiting run of each schedule and return its new ticket.

    The caller has the lock of each schedule and publishes the tickets, which are due now, so that
    the wait does not count as lateness. Skip a run whose last ticket is younger than
    `min_ticket_age` seconds.
    """
    if not policies:
        return []
    await overlap.delete_stale_slots(connection, policies)
    rows = await overlap.open_run_rows(connection, policies)
    chosen = {
        RunKey(time, schedule)
        for schedule, runs in rows.items()
        if (time := next_waiting(policies[schedule], [run.slot for run in runs])) is not None
    }
    woken = await overlap.wake(connection, chosen, min_ticket_age=min_ticket_age)
    tickets = await rebuild_tickets(connection, sorted(woken))
    return [TicketHeader.of(ticket.model_copy(update={"due_at": now})) for ticket in tickets]


async def wake_labels(
    connection: asyncpg.Connection,
    labels: Collection[Label],
    now: datetime,
    *,
    with_waiting: bool = False,
) -> list[TicketHeader]:
    """Wake the waiting runs for which their labels have slots, and return their new tickets.

    The caller has the lock of each label and publishes the tickets, which are due now, so that the
    wait does not count as lateness.
    With `with_waiting`, also delete the rows of waiting runs that have ended.
    """
    if not labels:
        return []
    await label_slots.delete_stale(connection, labels, with_waiting=with_waiting)
    slots = await label_slots.read_slots(connection, labels)
    chosen = {key for of_label in slots.values() for key in next_waiting_for_label(of_label)}
    woken = await label_slots.wake(connection, chosen)
    tickets = await rebuild_tickets(connection, woken)
    return [TicketHeader.of(_woken_ticket(ticket, now)) for ticket in tickets]


def _woken_ticket(ticket: Ticket, now: datetime) -> Ticket:
    """Return a ticket that is due now. Its run had a start time of the rate limit before its wait.

    The admission before the start still counts the start.
    """
    has_reserved = ticket.run_spec.rate_limit is not None
    return ticket.model_copy(update={"due_at": now, "reserved": has_reserved or None})
