"""The SQL of circuit breakers: two registers a row, of which the later word stands."""

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

CLOSED_RETENTION: Final = timedelta(hours=1)  # since it closed, and since the last order

_FOUND: Final = """
INSERT INTO breakers AS known (downstream, state, since, failed, attempts)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (downstream) DO UPDATE
SET state = excluded.state, since = excluded.since,
    failed = excluded.failed, attempts = excluded.attempts
WHERE known.since IS NULL OR known.since < excluded.since
"""
_FORCED: Final = """
INSERT INTO breakers AS known (downstream, forced, forced_at, forced_until, note, actor)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (downstream) DO UPDATE
SET forced = excluded.forced, forced_at = excluded.forced_at,
    forced_until = excluded.forced_until, note = excluded.note, actor = excluded.actor
WHERE known.forced_at IS NULL OR known.forced_at <= excluded.forced_at
"""
_COUNT: Final = "SELECT count(*) FROM breakers WHERE forced IS NOT NULL AND downstream <> $1"
_LAPSE: Final = """
UPDATE breakers SET forced = NULL, forced_at = forced_until, forced_until = NULL
WHERE forced_until <= now() RETURNING downstream, forced_at, note, actor
"""
_FORGET: Final = """
DELETE FROM breakers
WHERE state = 'closed' AND forced IS NULL
  AND greatest(since, forced_at) < now() - $1::interval
"""
_STANDING: Final = """
SELECT downstream, state, since, failed, attempts, forced, forced_until FROM breakers
ORDER BY forced IS NULL, since DESC NULLS LAST LIMIT $1
"""


async def record_state(connection: asyncpg.Pool, fact: BreakerEventData) -> None:
    values = (fact.downstream, fact.state, fact.since, fact.failed, fact.attempts)
    await connection.execute(_FOUND, *values)


async def force(
    connection: asyncpg.Pool,
    downstream: str,
    forced: BreakerState | None,
    at: datetime,
    *,
    until: datetime | None,
    note: str | None,
    actor: str | None,
) -> bool:
    """False: a later order has been followed already."""
    done: str = await connection.execute(_FORCED, downstream, forced, at, until, note, actor)
    return not done.endswith(" 0")


async def count_other_forced(connection: asyncpg.Pool, downstream: str) -> int:
    counted: int = await connection.fetchval(_COUNT, downstream)
    return counted


async def expire_forced(connection: asyncpg.Pool) -> list[Any]:
    """Those that cease to be forced, each told to one ticker only."""
    rows: list[Any] = await connection.fetch(_LAPSE)
    return rows


async def delete_forgotten(connection: asyncpg.Pool) -> None:
    await connection.execute(_FORGET, CLOSED_RETENTION)


async def load_snapshot(connection: asyncpg.Pool, as_of: datetime) -> BreakerSnapshot:
    rows = await connection.fetch(_STANDING, MAX_SNAPSHOT_BREAKERS)
    return BreakerSnapshot(as_of=as_of, breakers=[BreakerSnapshotEntry(**row) for row in rows])
