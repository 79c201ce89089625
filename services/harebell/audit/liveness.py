"""Signs of life, as the tables show them: who ought to have worked by now and has not."""

from datetime import timedelta
from typing import Final

import asyncpg

from harebell.audit.model.report import MissedHeartbeat
from harebell.storage.engine import translate_db_errors

# Schedules are looked at ahead of what they owe: one that is overdue was looked at by nobody.
_TICKER: Final = "SELECT min(next_at) FROM schedule_state WHERE next_at < now() - $1::interval"
# A pool that is only slow has runs under a lease. What waits for its turn is nobody's fault.
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
    connection: asyncpg.Connection, silent_after: timedelta
) -> list[MissedHeartbeat]:
    """Of all tenants: they share tickers and pools."""
    with translate_db_errors():
        since = await connection.fetchval(_TICKER, silent_after)
        pools = await connection.fetch(_POOLS, silent_after)
    tickers = [] if since is None else [MissedHeartbeat("ticker", since)]
    return tickers + [MissedHeartbeat(f"pool {row['pool']}", row["since"]) for row in pools]
