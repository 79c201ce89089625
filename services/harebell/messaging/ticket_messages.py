"""How tickets become messages: to wait in a delay tier, to the dispatcher, to their executors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from harebell.contract import amqp_names
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.ticket_batches import MAX_TICKETS, TicketHeader, split_by_queue, split_by_size, split_by_time
from harebell.messaging.topology.delay_queues import delay_queue_key, route


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketMessage(OutgoingMessage):
    """A message that still knows its tickets."""

    tickets: Sequence[TicketHeader]


def to_delay_queues(tickets: Iterable[TicketHeader], now: datetime) -> list[TicketMessage]:
    """Into the tiers until they are due; what is due sooner than any tier, straight to due."""
    return [_to_wait(group, now) for group in split_by_time(tickets, now)]


def to_one_delay_queue(tickets: Iterable[TicketHeader], ttl_ms: int) -> list[TicketMessage]:
    """Through one tier whatever their time, to be looked at again."""
    groups = split_by_size(tickets, MAX_TICKETS)
    return [_bundle(amqp_names.DELAY, delay_queue_key(ttl_ms), group) for group in groups]


def to_work_queues(tickets: Iterable[TicketHeader], max_tickets: int) -> list[TicketMessage]:
    """To the executors of their pool and lane, at most `bundle_max` tickets each."""
    groups = split_by_queue(tickets, max_tickets)
    return [_bundle(amqp_names.WORK, group[0].queue, group) for group in groups]


def batch_body(tickets: Iterable[TicketHeader]) -> bytes:
    """As they came."""
    return b"[" + b",".join(ticket.raw for ticket in tickets) + b"]"


def _to_wait(tickets: list[TicketHeader], now: datetime) -> TicketMessage:
    chosen = route(min(ticket.due_at for ticket in tickets), now)
    if chosen.ttl_ms is None:
        return _bundle(amqp_names.DUE, amqp_names.DUE_KEY, tickets)
    return _bundle(amqp_names.DELAY, delay_queue_key(chosen.ttl_ms), tickets)


def _bundle(exchange: str, routing_key: str, tickets: list[TicketHeader]) -> TicketMessage:
    first = tickets[0]
    return TicketMessage(
        exchange=exchange,
        routing_key=routing_key,
        body=batch_body(tickets),
        type=amqp_names.message_type("ticket.batch"),
        message_id=f"{first.run_id}/{first.seq}+{len(tickets)}",
        tickets=tickets,
    )
