"""The SQL of breakers. The state that dispatchers report and the forced state are independent.

For each of them, the later write decides.
Each change also begins or ends the deferral of the downstream, which the audit reads.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg

from harebell.contract.breakers import (
    MAX_SNAPSHOT_BREAKERS,
    BreakerEventData,
    BreakerSnapshot,
    BreakerSnapshotEntry,
    BreakerState,
)
from harebell.domain.run_states import RETENTION

CLOSED_RETENTION: Final = timedelta(hours=1)  # since the close and since the last command
MAX_DEFERRALS: Final = 100_000  # ended deferrals


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatements:
    """The statements of this module."""

    record_state: str
    record_deferral: str
    delete_old_deferrals: str
    force: str
    count_other_forced: str
    expire_forced: str
    delete_forgotten: str
    load_snapshot: str


STATEMENTS: Final = BreakerStatements(
    record_state="""
INSERT INTO breakers AS known
    (downstream, state, since, failed, attempts, reason, next_probe_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (downstream) DO UPDATE
SET state = excluded.state, since = excluded.since,
    failed = excluded.failed, attempts = excluded.attempts,
    reason = excluded.reason, next_probe_at = excluded.next_probe_at
WHERE known.since IS NULL OR known.since < excluded.since
""",
    # A deferral lasts from the first open state to the next closed state, measured or forced.
    record_deferral="""
WITH breaker AS (
    SELECT downstream, coalesce(forced, state) <> 'closed' AS is_deferring
    FROM breakers WHERE downstream = $1
), ended AS (
    UPDATE breaker_deferrals d SET until = greatest(d.since, $2)
    FROM breaker b
    WHERE d.downstream = b.downstream AND d.until IS NULL AND NOT b.is_deferring
)
INSERT INTO breaker_deferrals (downstream, since)
SELECT downstream, $2 FROM breaker b
WHERE is_deferring AND NOT EXISTS (
    SELECT FROM breaker_deferrals d WHERE d.downstream = b.downstream AND d.until IS NULL
)
ON CONFLICT (downstream, since) DO UPDATE SET until = NULL
""",
    delete_old_deferrals="""
DELETE FROM breaker_deferrals
WHERE until < now() - $1::interval OR (downstream, since) IN (
    SELECT downstream, since FROM breaker_deferrals WHERE until IS NOT NULL
    ORDER BY until DESC OFFSET $2
)
""",
    force="""
INSERT INTO breakers AS known (downstream, forced, forced_at, forced_until, note, actor)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (downstream) DO UPDATE
SET forced = excluded.forced, forced_at = excluded.forced_at,
    forced_until = excluded.forced_until, note = excluded.note, actor = excluded.actor
WHERE known.forced_at IS NULL OR known.forced_at <= excluded.forced_at
""",
    count_other_forced=(
        "SELECT count(*) FROM breakers WHERE forced IS NOT NULL AND downstream <> $1"
    ),
    expire_forced="""
UPDATE breakers SET forced = NULL, forced_at = forced_until, forced_until = NULL
WHERE forced_until <= now() RETURNING downstream, forced_at, note, actor
""",
    delete_forgotten="""
DELETE FROM breakers
WHERE state = 'closed' AND forced IS NULL
  AND greatest(since, forced_at) < now() - $1::interval
""",
    load_snapshot="""
SELECT downstream, state, since, failed, attempts, forced, forced_until FROM breakers
ORDER BY forced IS NULL, since DESC NULLS LAST LIMIT $1
""",
)


async def record_state(pool: asyncpg.Pool, reported: BreakerEventData) -> None:
    """Store the state that a dispatcher reported, unless a later state is stored."""
    async with pool.acquire() as connection, connection.transaction():
        done: str = await connection.execute(
            STATEMENTS.record_state,
            reported.downstream,
            reported.state,
            reported.since,
            reported.failed,
            reported.attempts,
            reported.reason,
            reported.next_probe_at,
        )
        if not done.endswith(" 0"):
            await _record_deferral(connection, reported.downstream, reported.since)


async def force(
    pool: asyncpg.Pool,
    downstream: str,
    forced: BreakerState | None,
    *,
    at: datetime,
    until: datetime | None,
    note: str | None,
    actor: str | None,
) -> bool:
    """Store a forced state, or reset it with None. Return False after a later command."""
    async with pool.acquire() as connection, connection.transaction():
        done: str = await connection.execute(
            STATEMENTS.force, downstream, forced, at, until, note, actor
        )
        is_stored = not done.endswith(" 0")
        if is_stored:
            await _record_deferral(connection, downstream, at)
    return is_stored


async def count_other_forced(pool: asyncpg.Pool, downstream: str) -> int:
    """Return the number of forced breakers of other downstreams."""
    count: int = await pool.fetchval(STATEMENTS.count_other_forced, downstream)
    return count


async def expire_forced(pool: asyncpg.Pool) -> list[Any]:
    """Reset the forced states whose time has passed. Each row is returned to one ticker only."""
    async with pool.acquire() as connection, connection.transaction():
        rows: list[Any] = await connection.fetch(STATEMENTS.expire_forced)
        for row in rows:
            await _record_deferral(connection, row["downstream"], row["forced_at"])
    return rows


async def delete_forgotten(pool: asyncpg.Pool) -> None:
    """Delete breakers that have been closed and not forced for `CLOSED_RETENTION`.

    Delete the deferrals of deleted runs, and the oldest ones above `MAX_DEFERRALS`.
    """
    await pool.execute(STATEMENTS.delete_forgotten, CLOSED_RETENTION)
    await pool.execute(STATEMENTS.delete_old_deferrals, RETENTION, MAX_DEFERRALS)


async def load_snapshot(pool: asyncpg.Pool, as_of: datetime) -> BreakerSnapshot:
    """Return at most `MAX_SNAPSHOT_BREAKERS` breakers, the forced breakers first."""
    rows = await pool.fetch(STATEMENTS.load_snapshot, MAX_SNAPSHOT_BREAKERS)
    return BreakerSnapshot(as_of=as_of, breakers=[BreakerSnapshotEntry(**row) for row in rows])


async def _record_deferral(
    connection: asyncpg.Connection, downstream: str, changed_at: datetime
) -> None:
    """Begin or end the deferral of the downstream, whose row the caller has locked."""
    await connection.execute(STATEMENTS.record_deferral, downstream, changed_at)
