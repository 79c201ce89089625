"""Tickets for tests, each of a separate run."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from uuid import UUID, uuid5

from harebell.contract.amqp_names import lane_of
from harebell.contract.target import TaskCall, TaskTarget
from harebell.contract.ticket import RunSpec, Ticket
from harebell.messaging.ticket_batches import TicketHeader

NINE: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
_SPACE: Final = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")


def ticket(
    number: int = 0,
    due_at: datetime = NINE,
    *,
    seq: int = 1,
    pool: str = "default",
    priority: int = 5,
    filling: int = 0,
    task: str = "harebell.echo",
) -> Ticket:
    """Return a ticket whose arguments contain `filling` additional bytes."""
    args = {"filling": "x" * filling}
    return Ticket(
        schedule_id=uuid5(_SPACE, str(number)),
        scheduled_for=due_at,
        due_at=due_at,
        seq=seq,
        version=1,
        pool=pool,
        lane=lane_of(priority),
        priority=priority,
        run_spec=RunSpec(tenant="default", target=TaskTarget(task=TaskCall(name=task, args=args))),
    )


def header(
    number: int = 0, due_at: datetime = NINE, *, pool: str = "default", priority: int = 5
) -> TicketHeader:
    """Return the header of `ticket(number, ...)`. A model for each of many tickets is too slow."""
    first = _first_header(due_at, pool, priority)
    schedule = uuid5(_SPACE, str(number))
    raw = first.raw.replace(str(first.key.schedule_id).encode(), str(schedule).encode())
    return first._replace(key=first.key._replace(schedule_id=schedule), raw=raw)


@lru_cache(maxsize=1_000)
def _first_header(due_at: datetime, pool: str, priority: int) -> TicketHeader:
    return TicketHeader.of(ticket(0, due_at, pool=pool, priority=priority))


def headers(tickets: int, due_at: datetime = NINE, *, first: int = 0) -> list[TicketHeader]:
    """Return tickets that are due at one time."""
    return [header(number, due_at) for number in range(first, first + tickets)]


def after(seconds: float) -> datetime:
    """Return the time `seconds` after nine."""
    return NINE + timedelta(seconds=seconds)
