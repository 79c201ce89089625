"""Ticket headers, and the rules for the tickets in one message. Pure."""

from bisect import bisect_right
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
from harebell.domain.run_states import start_rank

MAX_TICKETS: Final = 200  # in one batch on its way to the dispatcher
MAX_BYTES: Final = 256 * 1024  # of one batch, except a batch of one larger ticket
MAX_SPAN: Final = timedelta(milliseconds=250)  # between the due times of one batch

# Many tickets have the same times and pools. The check of such a value costs as much as the rest of
# the parsing, and the caches avoid repeated checks.
_parse_instant: Final = lru_cache(4096)(parse_instant)
_parse_pool: Final = lru_cache(256)(TypeAdapter(PoolName).validate_python)


class TicketHeader(NamedTuple):
    """The fields of a ticket that routing reads, and the unchanged ticket as `raw`.

    The class is a tuple because each run creates several (decision 19).
    """

    key: RunKey
    seq: int
    due_at: datetime
    pool: str
    lane: Lane
    priority: int
    raw: bytes
    tenant: str = UNKNOWN_DOWNSTREAM
    downstream: str = UNKNOWN_DOWNSTREAM  # the gates of the dispatcher read it
    claim_at_due_time: bool = False  # an executor claims the run at its due time, never earlier

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
        """Return the run key and the `seq`, which a repeated delivery of a ticket shares."""
        return self.key, self.seq

    @property
    def queue(self) -> str:
        """Return the routing key of the work queue for the pool and the lane."""
        return work_key(self.pool, self.lane)


def parse_ticket_headers(body: bytes) -> list[TicketHeader]:
    """Parse and check only the fields that routing reads.

    Raise `InvalidInput` with the index of the first invalid ticket.
    """
    tickets = decode_trusted(body)
    if not isinstance(tickets, list):
        reason = f"A ticket batch must be a JSON array, not {type(tickets).__name__}."
        raise InvalidInput(reason, code="not_a_batch")
    return [_parse_header(ticket, index) for index, ticket in enumerate(tickets)]


def _parse_header(ticket: Any, index: int) -> TicketHeader:  # noqa: ANN401  # decoded JSON
    try:
        run_spec = ticket.get("run_spec", {})
        return TicketHeader(
            key=RunKey(_parse_instant(ticket["scheduled_for"]), UUID(ticket["schedule_id"])),
            seq=_integer(ticket["seq"]),
            due_at=_parse_instant(ticket["due_at"]),
            pool=_parse_pool(ticket["pool"]),
            lane=Lane(ticket["lane"]),
            priority=_integer(ticket["priority"]),
            raw=orjson.dumps(ticket),
            tenant=str(run_spec.get("tenant", UNKNOWN_DOWNSTREAM)),
            downstream=downstream_of_json(run_spec.get("target")),
            claim_at_due_time=claim_at_due_time_of_json(ticket),
        )
    except KeyError as error:
        field = f"[{index}].{error.args[0]}"
        raise InvalidInput("The field is required.", field=field) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"The ticket is invalid: {error}", field=f"[{index}]") from None


def _integer(value: Any) -> int:  # noqa: ANN401  # decoded JSON
    if type(value) is not int:
        raise TypeError(f"The value must be an integer, not {value!r:.40}.")
    return value


def split_by_time(tickets: Iterable[TicketHeader], now: datetime) -> Iterator[list[TicketHeader]]:
    """Yield batches of tickets whose due times differ by at most `MAX_SPAN`.

    The function takes `now` as the due time of every overdue ticket. The overdue tickets are first,
    in the order of their start ranks.
    """

    def effective_due_at(ticket: TicketHeader) -> datetime:
        return max(ticket.due_at, now)

    ordered = sorted(tickets, key=effective_due_at)  # stable: equal times keep their order
    overdue = bisect_right(ordered, now, key=effective_due_at)
    ordered[:overdue] = sorted(ordered[:overdue], key=_rank)
    span: list[TicketHeader] = []
    for ticket in ordered:
        if span and effective_due_at(ticket) - effective_due_at(span[0]) > MAX_SPAN:
            yield from split_by_size(span, MAX_TICKETS)
            span = []
        span.append(ticket)
    yield from split_by_size(span, MAX_TICKETS)


def split_by_queue(tickets: Iterable[TicketHeader], limit: int) -> Iterator[list[TicketHeader]]:
    """Yield batches of up to `limit` tickets of one pool and lane, the lowest start rank first."""
    ordered = sorted(tickets, key=lambda ticket: (ticket.queue, _rank(ticket)))
    for _, queue in groupby(ordered, key=attrgetter("queue")):
        yield from split_by_size(queue, limit)


def _rank(ticket: TicketHeader) -> datetime:
    return start_rank(ticket.due_at, ticket.priority)


def split_by_size(tickets: Iterable[TicketHeader], limit: int) -> Iterator[list[TicketHeader]]:
    """Yield batches in the given order with up to `limit` tickets and `MAX_BYTES` each."""
    batch: list[TicketHeader] = []
    size = 0
    for ticket in tickets:
        if batch and (len(batch) == limit or size + len(ticket.raw) + 1 > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(ticket)
        size += len(ticket.raw) + 1  # the comma
    if batch:
        yield batch
