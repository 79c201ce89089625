"""A ticket as routing sees it, and which tickets may travel in one message. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from pydantic import TypeAdapter

from harebell.contract.amqp_names import Lane, work_key
from harebell.contract.downstream import UNKNOWN_DOWNSTREAM, downstream_of_json
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunId, RunKey
from harebell.contract.json_codec import decode_trusted, encode
from harebell.contract.ticket import Ticket, claim_at_due_time_of_json
from harebell.contract.types import PoolName, parse_instant

MAX_TICKETS: Final = 200  # of one bundle on its way to due
MAX_BYTES: Final = 256 * 1024  # of one bundle, unless a single ticket is larger
MAX_SPAN: Final = timedelta(milliseconds=250)  # between the due times of one bundle

# Many tickets say few instants and pools; to check one again costs as much as all the rest.
_instant: Final = lru_cache(4096)(parse_instant)
_pool: Final = lru_cache(256)(TypeAdapter(PoolName).validate_python)


class TicketHeader(NamedTuple):
    """The few facts that routing needs; the ticket itself stays as it came."""

    key: RunKey
    seq: int
    due_at: datetime
    pool: str
    lane: Lane
    priority: int
    raw: bytes
    tenant: str = UNKNOWN_DOWNSTREAM
    downstream: str = (
        UNKNOWN_DOWNSTREAM  # whom its target calls: what gates of the dispatcher go by
    )
    claim_at_due_time: bool = False  # not before

    @classmethod
    def of(cls, ticket: Ticket) -> "TicketHeader":
        return cls(
            key=ticket.run_key,
            seq=ticket.seq,
            due_at=ticket.due_at,
            pool=ticket.pool,
            lane=ticket.lane,
            priority=ticket.priority,
            raw=encode(ticket),
            tenant=ticket.run_spec.tenant,
            downstream=ticket.downstream,
            claim_at_due_time=ticket.claim_at_due_time,
        )

    @property
    def run_id(self) -> RunId:
        return str(self.key)

    @property
    def identity(self) -> tuple[RunKey, int]:
        """Two tickets with the same one are the same ticket, delivered twice."""
        return self.key, self.seq

    @property
    def queue(self) -> str:
        """The routing key of its work: a pool and a lane."""
        return work_key(self.pool, self.lane)


def parse_ticket_headers(body: bytes) -> list[TicketHeader]:
    """Checks the fields that routing reads, no other; raises `Malformed`."""
    tickets = decode_trusted(body)
    if not isinstance(tickets, list):
        raise InvalidInput("a bundle is an array of tickets", code="not_a_batch")
    return [_routed(ticket, place) for place, ticket in enumerate(tickets)]


def _routed(ticket: Any, place: int) -> TicketHeader:  # noqa: ANN401  # decoded JSON
    try:
        work = ticket.get("run_spec", {})
        return TicketHeader(
            key=RunKey(_instant(ticket["scheduled_for"]), UUID(ticket["schedule_id"])),
            seq=_integer(ticket["seq"]),
            due_at=_instant(ticket["due_at"]),
            pool=_pool(ticket["pool"]),
            lane=Lane(ticket["lane"]),
            priority=_integer(ticket["priority"]),
            raw=orjson.dumps(ticket),
            tenant=str(work.get("tenant", UNKNOWN_DOWNSTREAM)),
            downstream=downstream_of_json(work.get("target")),
            claim_at_due_time=claim_at_due_time_of_json(ticket),
        )
    except KeyError as error:
        raise InvalidInput("is required", field=f"[{place}].{error.args[0]}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"not a ticket: {error}", field=f"[{place}]") from None


def _integer(value: Any) -> int:  # noqa: ANN401
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is not an integer")
    return value


def split_by_time(tickets: Iterable[TicketHeader], now: datetime) -> Iterator[list[TicketHeader]]:
    """What may wait together: what is due within MAX_SPAN. All that is overdue is due now."""

    def due(ticket: TicketHeader) -> datetime:
        return max(ticket.due_at, now)

    span: list[TicketHeader] = []
    for ticket in sorted(tickets, key=due):  # stable: what is due together keeps its order
        if span and due(ticket) - due(span[0]) > MAX_SPAN:
            yield from split_by_size(span, MAX_TICKETS)
            span = []
        span.append(ticket)
    yield from split_by_size(span, MAX_TICKETS)


def split_by_queue(tickets: Iterable[TicketHeader], limit: int) -> Iterator[list[TicketHeader]]:
    """What may be worked on together: one pool and lane, the most urgent first."""
    ordered = sorted(tickets, key=lambda ticket: (ticket.queue, -ticket.priority))
    for _, queue in groupby(ordered, key=attrgetter("queue")):
        yield from split_by_size(queue, limit)


def split_by_size(tickets: Iterable[TicketHeader], limit: int) -> Iterator[list[TicketHeader]]:
    """In order, at most `limit` tickets and MAX_BYTES at a time."""
    part: list[TicketHeader] = []
    size = 0
    for ticket in tickets:
        if part and (len(part) == limit or size + len(ticket.raw) + 1 > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(ticket)
        size += len(ticket.raw) + 1  # and its comma
    if part:
        yield part
