"""How tickets become messages: to wait in a delay tier, to the dispatcher, to their executors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from harebell.contract import names
from harebell.kernel.amqp.publish import Outgoing
from harebell.kernel.delay import route, tier_key
from harebell.kernel.routing import MAX_TICKETS, Routed, by_queue, by_size, by_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle(Outgoing):
    """A message that still knows its tickets."""

    tickets: Sequence[Routed]


def waiting(tickets: Iterable[Routed], now: datetime) -> list[Bundle]:
    """Into the tiers until they are due; what is due sooner than any tier, straight to due."""
    return [_to_wait(group, now) for group in by_time(tickets, now)]


def circling(tickets: Iterable[Routed], tier: int) -> list[Bundle]:
    """Through one tier whatever their time, to be looked at again."""
    groups = by_size(tickets, MAX_TICKETS)
    return [_bundle(names.DELAY, tier_key(tier), group) for group in groups]


def working(tickets: Iterable[Routed], bundle_max: int) -> list[Bundle]:
    """To the executors of their pool and lane, at most `bundle_max` tickets each."""
    groups = by_queue(tickets, bundle_max)
    return [_bundle(names.WORK, group[0].queue, group) for group in groups]


def body_of(tickets: Iterable[Routed]) -> bytes:
    """As they came."""
    return b"[" + b",".join(ticket.raw for ticket in tickets) + b"]"


def _to_wait(tickets: list[Routed], now: datetime) -> Bundle:
    chosen = route(min(ticket.due_at for ticket in tickets), now)
    if chosen.tier is None:
        return _bundle(names.DUE, names.DUE_KEY, tickets)
    return _bundle(names.DELAY, tier_key(chosen.tier), tickets)


def _bundle(exchange: str, routing_key: str, tickets: list[Routed]) -> Bundle:
    first = tickets[0]
    return Bundle(
        exchange=exchange,
        routing_key=routing_key,
        body=body_of(tickets),
        type=names.message_type("ticket.bundle"),
        message_id=f"{first.run_id}/{first.seq}+{len(tickets)}",
        tickets=tickets,
    )
