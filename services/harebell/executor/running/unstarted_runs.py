"""Claimed runs that have not started, which an executor returns when it stops."""

from collections.abc import Sequence

import asyncpg
import structlog

from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.messaging import run_log
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime.clock import Clock
from harebell.storage.runs import claims

log = structlog.get_logger()


async def return_unstarted(
    runs: Sequence[ClaimedRun],
    *,
    pool: asyncpg.Pool,
    publisher: Publisher,
    clock: Clock,
    claimed_runs: ClaimedRuns,
) -> None:
    """Return the claims of unstarted runs without an attempt, and publish new tickets for them.

    Raise `DatabaseUnavailable` or `BrokerUnavailable`. The leases of the runs then expire.
    """
    by_key = {run.key: run for run in runs}
    if not by_key:
        return
    held = [claims.Claim(run.key, run.token, run.attempt) for run in by_key.values()]
    async with publishing_transaction(pool, publisher, clock) as transaction:
        returned = await claims.return_unstarted(transaction.connection, held)
        tickets = [
            TicketHeader.of(by_key[key].ticket.model_copy(update={"seq": seq}))
            for key, seq in returned.items()
        ]
        await transaction.publish(tickets)
    claimed_runs.remove(list(by_key.values()))
    log.info("unstarted runs returned", runs=len(tickets))
    run_log.log_staged(tickets)
