"""Missed heartbeats: tickers and pools that should have worked and, by the tables, did not."""

from datetime import timedelta
from typing import Final

import asyncpg

from harebell.audit.model.report import MissedHeartbeat
from harebell.storage.engine import translate_db_errors

# The ticker reads a schedule before its next time, so an overdue schedule has no working ticker.
_TICKER: Final = "SELECT min(next_at) FROM schedule_state WHERE next_at < now() - $1::interval"
# A slow pool still has runs with a valid lease, and a run may wait for an overlap slot.
_POOLS: Final = """
SELECT pool, min(coalesce(next_attempt_at, due_at)) AS since FROM runs
WHERE finished_at IS NULL AND due_at < now()
GROUP BY pool
HAVING bool_or(state <> 'running' AND coalesce(next_attempt_at, due_at) < now() - $1::interval
               AND reason IS DISTINCT FROM 'waiting_for_overlap')
   AND NOT bool_or(state = 'running' AND lease_until > now())
ORDER BY pool
"""


async def find_missed_heartbeats(
    connection: asyncpg.Connection, late_after: timedelta
) -> list[MissedHeartbeat]:
    """Return the missed heartbeats of the tickers and of each pool, which all tenants share.

    Raise `DatabaseUnavailable` if the connection fails.
    """
    with translate_db_errors():
        since = await connection.fetchval(_TICKER, late_after)
        pools = await connection.fetch(_POOLS, late_after)
    tickers = [] if since is None else [MissedHeartbeat("ticker", since)]
    return tickers + [MissedHeartbeat(f"pool {row['pool']}", row["since"]) for row in pools]
