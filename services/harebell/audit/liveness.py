"""Missed heartbeats: tickers and pools that should have worked and, by the tables, did not."""

from datetime import datetime, timedelta
from typing import Final

import asyncpg

from harebell.audit.model.report import MissedHeartbeat
from harebell.audit.model.waits import NO_WAITS, Waits
from harebell.audit.store import FIRST_STAGED_AT
from harebell.audit.waits import downstream_of_text
from harebell.storage.engine import translate_db_errors

PREFETCH: Final = 1_000  # targets of one round trip

# The ticker reads a schedule before its next time, so an overdue schedule has no working ticker.
# A resumed schedule continues at a past time, so its delay begins with the command.
_TICKER: Final = """
SELECT min(greatest(next_at, changed_at)) FROM schedule_state
WHERE next_at < now() - $1::interval AND changed_at < now() - $1::interval
"""
_EXPECTED_AT: Final = f"greatest(coalesce(next_attempt_at, due_at), {FIRST_STAGED_AT})"
_IS_OVERDUE: Final = f"""state <> 'running' AND {_EXPECTED_AT} < now() - $1::interval
               AND coalesce(reason, '') NOT IN ('waiting_for_overlap', 'waiting_for_label')"""
# A slow pool still has runs with a valid lease, and a run may wait for a slot.
_POOLS: Final = f"""
SELECT pool, now() AS now FROM runs
WHERE finished_at IS NULL AND due_at < now()
GROUP BY pool
HAVING bool_or({_IS_OVERDUE})
   AND NOT bool_or(state = 'running' AND lease_until > now())
ORDER BY pool
"""  # noqa: S608  # the parts are constants
# The earliest run of a target waits for the longest time.
_OVERDUE_TARGETS: Final = f"""
SELECT coalesce(r.override->>'target', v.run_spec->>'target') AS target, r.tenant,
       min({_EXPECTED_AT}) AS since
FROM runs r JOIN schedule_versions v ON v.schedule_id = r.schedule_id AND v.version = r.version
WHERE r.finished_at IS NULL AND r.due_at < now() AND r.pool = $2 AND {_IS_OVERDUE}
GROUP BY 1, 2 ORDER BY since
"""  # noqa: S608  # the parts are constants


async def find_missed_heartbeats(
    connection: asyncpg.Connection, late_after: timedelta, waits: Waits = NO_WAITS
) -> list[MissedHeartbeat]:
    """Return the missed heartbeats of the tickers and of each pool, which all tenants share.

    A pool whose due runs all wait for breakers is not silent.
    Raise `DatabaseUnavailable` if the connection fails.
    """
    with translate_db_errors():
        since = await connection.fetchval(_TICKER, late_after)
        found = [] if since is None else [MissedHeartbeat("ticker", since)]
        async with connection.transaction(readonly=True):
            for row in await connection.fetch(_POOLS, late_after):
                pool, now = row["pool"], row["now"]
                overdue = await _overdue_since(
                    connection, pool, late_after=late_after, now=now, waits=waits
                )
                if overdue is not None:
                    found.append(MissedHeartbeat(f"pool {pool}", overdue))
    return found


async def _overdue_since(
    connection: asyncpg.Connection,
    pool: str,
    *,
    late_after: timedelta,
    now: datetime,
    waits: Waits,
) -> datetime | None:
    """Return the time since which the pool has a due run that waits for no breaker."""
    async for row in connection.cursor(_OVERDUE_TARGETS, late_after, pool, prefetch=PREFETCH):
        since: datetime = row["since"]
        downstream = downstream_of_text(row["target"])
        if waits.delay(downstream, since, now, tenant=row["tenant"]) > late_after:
            return since
    return None
