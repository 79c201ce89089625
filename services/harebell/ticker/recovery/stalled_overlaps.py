"""Runs that wait for a turn that nobody passes on: the run before them ended unseen."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.storage.run_completion import wake_next
from harebell.storage.runs import overlap
from harebell.storage.runs.tickets import rebuild_tickets
from harebell.ticker import metrics

log = structlog.get_logger()


async def without_locked_schedules(
    connection: asyncpg.Connection, tickets: Sequence[Ticket]
) -> list[Ticket]:
    """Without those of schedules that somebody else decides about: the next pass has them.

    A sweep holds their rows already. To wait for a lock that others take first would be a deadlock.
    """
    disputed = {ticket.schedule_id for ticket in tickets if ticket.restricts_overlap}
    mine = await overlap.try_lock(connection, disputed) if disputed else disputed
    return [t for t in tickets if not t.restricts_overlap or t.schedule_id in mine]


async def wake_stalled(pool: asyncpg.Pool, publisher: Publisher, clock: Clock) -> None:
    """Raises `Transient`: what was not published is found again."""
    with translate_db_errors():
        if not (stuck := await overlap.find_stalled(pool)):
            return
    async with publishing_transaction(pool, publisher, clock) as authority:
        connection = authority.connection
        mine = await overlap.try_lock(connection, stuck)
        policies = await _policies(connection, mine)
        now = clock.now()
        woken = await wake_next(connection, policies, now, min_ticket_age=overlap.WAKE_AFTER)
        await authority.publish(woken)
    if woken:
        metrics.RECOVERED_RUNS.labels("woken").inc(len(woken))
        log.info("swept", why="woken", runs=len(woken))


async def _policies(
    connection: asyncpg.Connection, schedules: Iterable[UUID]
) -> dict[UUID, Overlap]:
    """As the newest run that waits has it; where none waits there are only turns to forget."""
    policies = dict.fromkeys(schedules, Overlap.QUEUE)
    standing = await overlap.open_run_rows(connection, policies)
    newest = [
        max(run.key for run in runs if run.slot.is_waiting)
        for runs in standing.values()
        if any(run.slot.is_waiting for run in runs)
    ]
    tickets = await rebuild_tickets(connection, sorted(newest))
    return policies | {ticket.schedule_id: ticket.overlap for ticket in tickets}
