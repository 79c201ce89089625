"""Stalled overlap slots: waiting runs whose earlier run has ended without waking them."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.ledger.woken_runs import labels_of, wake_next
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import label_slots, overlap
from harebell.storage.runs.staging import rebuild_tickets
from harebell.ticker import metrics

log = structlog.get_logger()


async def without_locked(connection: asyncpg.Connection, tickets: Sequence[Ticket]) -> list[Ticket]:
    """Lock the schedules and labels of the tickets, and omit tickets whose lock is taken.

    The next pass finds the omitted tickets.
    The caller has locked the rows of the runs, so waiting for another lock could deadlock.
    """
    restricted = {ticket.schedule_id for ticket in tickets if ticket.restricts_overlap}
    locked = await overlap.try_lock(connection, restricted) if restricted else restricted
    free = [t for t in tickets if not t.restricts_overlap or t.schedule_id in locked]
    labels = await label_slots.try_lock(connection, labels_of(free))
    return [ticket for ticket in free if labels_of([ticket]) <= labels]


async def wake_stalled(pool: asyncpg.Pool, publisher: Publisher, clock: Clock) -> None:
    """Publish new tickets of stalled runs. Raise `Transient`, and find the runs again later."""
    with translate_db_errors():
        if not (stalled := await overlap.find_stalled(pool)):
            return
    async with publishing_transaction(pool, publisher, clock) as transaction:
        connection = transaction.connection
        locked = await overlap.try_lock(connection, stalled)
        policies = await _policies(connection, locked)
        now = clock.now()
        woken = await wake_next(connection, policies, now, min_ticket_age=overlap.WAKE_AFTER)
        await transaction.publish(woken)
    if woken:
        metrics.RECOVERED_RUNS.labels("woken").inc(len(woken))
        log.info("stalled runs woken", runs=len(woken))


async def _policies(
    connection: asyncpg.Connection, schedules: Iterable[UUID]
) -> dict[UUID, Overlap]:
    """Return the overlap policy of the newest waiting run of each schedule.

    A schedule without a waiting run has only stale slots, so its policy has no effect.
    """
    policies = dict.fromkeys(schedules, Overlap.QUEUE)
    rows = await overlap.open_run_rows(connection, policies)
    newest = [
        max(run.key for run in runs if run.slot.is_waiting)
        for runs in rows.values()
        if any(run.slot.is_waiting for run in runs)
    ]
    tickets = await rebuild_tickets(connection, sorted(newest))
    return policies | {ticket.schedule_id: ticket.overlap for ticket in tickets}
