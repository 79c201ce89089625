"""Stalled labels: waiting runs although their concurrency label has a free slot."""

import asyncpg
import structlog

from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.ledger.woken_runs import wake_labels
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import label_slots
from harebell.ticker import metrics

log = structlog.get_logger()


async def wake_stalled_labels(pool: asyncpg.Pool, publisher: Publisher, clock: Clock) -> None:
    """Publish tickets for the runs that have a slot. Raise `Transient`, and find them again later.

    Slots become free without a wake if a reservation ends, if a command or an expiry ends a run, or
    if an executor returns a run. Rows of runs that have ended are deleted too.
    """
    with translate_db_errors():
        if not (stalled := await label_slots.find_stalled(pool)):
            return
    async with publishing_transaction(pool, publisher, clock) as transaction:
        connection = transaction.connection
        locked = await label_slots.try_lock(connection, stalled)
        woken = await wake_labels(connection, locked, clock.now(), with_waiting=True)
        await transaction.publish(woken)
    if woken:
        metrics.RECOVERED_RUNS.labels("woken").inc(len(woken))
        log.info("stalled runs woken", runs=len(woken))
