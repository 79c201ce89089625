"""Messages that carry ticket batches to delay queues, the dispatcher or work queues."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.ticket_batches import (
    MAX_TICKETS,
    TicketHeader,
    split_by_queue,
    split_by_size,
    split_by_time,
)
from harebell.messaging.topology.delay_queues import delay_queue_key, route


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketMessage(OutgoingMessage):
    """A message to publish, with the headers of its tickets."""

    tickets: Sequence[TicketHeader]


def to_delay_queues(tickets: Iterable[TicketHeader], now: datetime) -> list[TicketMessage]:
    """Return messages to the longest possible delay queues.

    Tickets that are due sooner than any delay queue releases them go to the dispatcher.
    """
    return [_delay_message(batch, now) for batch in split_by_time(tickets, now)]


def to_one_delay_queue(tickets: Iterable[TicketHeader], ttl_ms: int) -> list[TicketMessage]:
    """Return messages to the delay queue with this TTL, whatever the due times are."""
    batches = split_by_size(tickets, MAX_TICKETS)
    return [_batch_message(amqp_names.DELAY, delay_queue_key(ttl_ms), batch) for batch in batches]


def to_work_queues(
    tickets: Iterable[TicketHeader],
    max_tickets: int,
    *,
    headers: Mapping[str, FieldValue] | None = None,
) -> list[TicketMessage]:
    """Return messages of up to `max_tickets` tickets to the work queues."""
    batches = split_by_queue(tickets, max_tickets)
    return [
        _batch_message(amqp_names.WORK, batch[0].queue, batch, headers=headers) for batch in batches
    ]


def batch_body(tickets: Iterable[TicketHeader]) -> bytes:
    """Return a JSON array of the unchanged tickets."""
    return b"[" + b",".join(ticket.raw for ticket in tickets) + b"]"


def _delay_message(tickets: list[TicketHeader], now: datetime) -> TicketMessage:
    chosen = route(min(ticket.due_at for ticket in tickets), now)
    if chosen.ttl_ms is None:
        return _batch_message(amqp_names.DUE, amqp_names.DUE_KEY, tickets)
    return _batch_message(amqp_names.DELAY, delay_queue_key(chosen.ttl_ms), tickets)


def _batch_message(
    exchange: str,
    routing_key: str,
    tickets: list[TicketHeader],
    *,
    headers: Mapping[str, FieldValue] | None = None,
) -> TicketMessage:
    first = tickets[0]
    return TicketMessage(
        exchange=exchange,
        routing_key=routing_key,
        body=batch_body(tickets),
        type=amqp_names.message_type("ticket.batch"),
        message_id=f"{first.run_id}/{first.seq}+{len(tickets)}",
        headers=headers or {},
        tickets=tickets,
    )
