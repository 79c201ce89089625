"""The SQL of breakers. The state that dispatchers report and the forced state are independent.

For each of them, the later write decides.
One table contains the breakers that hold all tenants, and one those that hold one tenant each.
Each change also begins or ends the deferral of the downstream, which the audit reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

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
MAX_DEFERRALS: Final = 100_000  # ended deferrals of a table
MAX_TENANT_BREAKERS: Final = 1_000  # breakers of one tenant, the latest, and forced ones


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatements:
    """The statements about one of the two tables of breakers."""

    record_state: str
    record_deferral: str
    delete_old_deferrals: str
    force: str
    count_other_forced: str
    expire_forced: str
    delete_forgotten: str
    load_snapshot: str


def _statements(table: str, deferrals: str, *key: str) -> BreakerStatements:
    """Return the statements about breakers with these key columns, the first parameters."""
    columns, count = ", ".join(key), len(key)
    p = [f"${number}" for number in range(count + 8)]  # p[1] is the first parameter
    is_key = " AND ".join(f"{name} = ${number}" for number, name in enumerate(key, 1))
    values = ", ".join(p[1 : count + 1])
    same = " AND ".join(f"d.{name} = b.{name}" for name in key)
    return BreakerStatements(
        record_state=f"""
INSERT INTO {table} AS known
    ({columns}, state, since, failed, attempts, reason, next_probe_at)
VALUES ({", ".join(p[1 : count + 7])})
ON CONFLICT ({columns}) DO UPDATE
SET state = excluded.state, since = excluded.since,
    failed = excluded.failed, attempts = excluded.attempts,
    reason = excluded.reason, next_probe_at = excluded.next_probe_at
WHERE known.since IS NULL OR known.since < excluded.since
""",  # noqa: S608  # the parts are constants
        # A deferral lasts from the first open state to the next closed state, measured or forced.
        record_deferral=f"""
WITH breaker AS (
    SELECT {columns}, coalesce(forced, state) <> 'closed' AS is_deferring
    FROM {table} WHERE {is_key}
), ended AS (
    UPDATE {deferrals} d SET until = greatest(d.since, {p[count + 1]})
    FROM breaker b
    WHERE {same} AND d.until IS NULL AND NOT b.is_deferring
)
INSERT INTO {deferrals} ({columns}, since)
SELECT {columns}, {p[count + 1]} FROM breaker b
WHERE is_deferring AND NOT EXISTS (
    SELECT FROM {deferrals} d WHERE {same} AND d.until IS NULL
)
ON CONFLICT ({columns}, since) DO UPDATE SET until = NULL
""",  # noqa: S608  # the parts are constants
        delete_old_deferrals=f"""
DELETE FROM {deferrals}
WHERE until < now() - $1::interval OR ({columns}, since) IN (
    SELECT {columns}, since FROM {deferrals} WHERE until IS NOT NULL
    ORDER BY until DESC OFFSET $2
)
""",  # noqa: S608  # the parts are constants
        force=f"""
INSERT INTO {table} AS known ({columns}, forced, forced_at, forced_until, note, actor)
VALUES ({", ".join(p[1 : count + 6])})
ON CONFLICT ({columns}) DO UPDATE
SET forced = excluded.forced, forced_at = excluded.forced_at,
    forced_until = excluded.forced_until, note = excluded.note, actor = excluded.actor
WHERE known.forced_at IS NULL OR known.forced_at <= excluded.forced_at
""",  # noqa: S608  # the parts are constants
        count_other_forced=f"""
SELECT count(*) FROM {table} WHERE forced IS NOT NULL AND ({columns}) <> ({values})
""",  # noqa: S608  # the parts are constants
        expire_forced=f"""
UPDATE {table} SET forced = NULL, forced_at = forced_until, forced_until = NULL
WHERE forced_until <= now() RETURNING {columns}, forced_at, note, actor
""",  # noqa: S608  # the parts are constants
        delete_forgotten=f"""
DELETE FROM {table}
WHERE state = 'closed' AND forced IS NULL
  AND greatest(since, forced_at) < now() - $1::interval
""",  # noqa: S608  # the parts are constants
        # Each tenant has its latest breakers in the list before another tenant has many.
        load_snapshot=f"""
SELECT {columns}, state, since, failed, attempts, forced, forced_until FROM {table}
ORDER BY forced IS NULL, {_rank(key)} since DESC NULLS LAST LIMIT $1
""",  # noqa: S608  # the parts are constants
    )


def _rank(key: Sequence[str]) -> str:
    if TENANT not in key:
        return ""
    return "row_number() OVER (PARTITION BY tenant ORDER BY since DESC NULLS LAST),"


TENANT: Final = "tenant"
# The breakers that hold all tenants. A ticker of an older version knows only this table.
SHARED: Final = _statements("breakers", "breaker_deferrals", "downstream")
OWN: Final = _statements("tenant_breakers", "tenant_breaker_deferrals", TENANT, "downstream")

# A tenant chooses the names of its downstreams, so a bound for each tenant keeps the table small.
_DELETE_SURPLUS: Final = """
WITH surplus AS (
    DELETE FROM tenant_breakers WHERE (tenant, downstream) IN (
        SELECT tenant, downstream FROM (
            SELECT tenant, downstream, row_number()
                OVER (PARTITION BY tenant ORDER BY since DESC NULLS LAST) AS place
            FROM tenant_breakers WHERE forced IS NULL
        ) AS ranked WHERE place > $1
    ) RETURNING tenant, downstream
)
UPDATE tenant_breaker_deferrals d SET until = greatest(d.since, now())
FROM surplus s WHERE d.tenant = s.tenant AND d.downstream = s.downstream AND d.until IS NULL
"""


class BreakerName(NamedTuple):
    """The tenant and the downstream of a breaker. Without a tenant it holds all tenants."""

    downstream: str
    tenant: str | None = None

    @property
    def statements(self) -> BreakerStatements:
        return SHARED if self.tenant is None else OWN

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the values of the key columns."""
        return (self.downstream,) if self.tenant is None else (self.tenant, self.downstream)


async def record_state(pool: asyncpg.Pool, reported: BreakerEventData) -> None:
    """Store the state that a dispatcher reported, unless a later state is stored."""
    name = BreakerName(reported.downstream, reported.tenant)
    async with pool.acquire() as connection, connection.transaction():
        done: str = await connection.execute(
            name.statements.record_state,
            *name.columns,
            reported.state,
            reported.since,
            reported.failed,
            reported.attempts,
            reported.reason,
            reported.next_probe_at,
        )
        if not done.endswith(" 0"):
            await _record_deferral(connection, name, reported.since)


async def force(
    pool: asyncpg.Pool,
    name: BreakerName,
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
            name.statements.force, *name.columns, forced, at, until, note, actor
        )
        is_stored = not done.endswith(" 0")
        if is_stored:
            await _record_deferral(connection, name, at)
    return is_stored


async def count_other_forced(pool: asyncpg.Pool, name: BreakerName) -> int:
    """Return the number of other forced breakers, of all tenants or of single tenants."""
    count: int = await pool.fetchval(name.statements.count_other_forced, *name.columns)
    return count


async def expire_forced(pool: asyncpg.Pool) -> list[Any]:
    """Reset the forced states whose time has passed. Each row is returned to one ticker only."""
    async with pool.acquire() as connection, connection.transaction():
        rows: list[Any] = []
        for statements in (SHARED, OWN):
            rows += await connection.fetch(statements.expire_forced)
        for row in rows:
            await _record_deferral(connection, name_of(row), row["forced_at"])
    return rows


def name_of(row: Mapping[str, Any]) -> BreakerName:
    """Return the name of the breaker of a row."""
    return BreakerName(row["downstream"], row.get(TENANT))


async def delete_surplus(pool: asyncpg.Pool) -> None:
    """Delete the breakers of a tenant above `MAX_TENANT_BREAKERS`, the oldest first."""
    await pool.execute(_DELETE_SURPLUS, MAX_TENANT_BREAKERS)


async def delete_forgotten(pool: asyncpg.Pool) -> None:
    """Delete breakers that have been closed and not forced for `CLOSED_RETENTION`.

    Delete the deferrals of deleted runs, and the oldest deferrals above `MAX_DEFERRALS`.
    """
    for statements in (SHARED, OWN):
        await pool.execute(statements.delete_forgotten, CLOSED_RETENTION)
        await pool.execute(statements.delete_old_deferrals, RETENTION, MAX_DEFERRALS)


async def load_snapshot(pool: asyncpg.Pool, as_of: datetime) -> BreakerSnapshot:
    """Return at most `MAX_SNAPSHOT_BREAKERS` breakers of each kind, the forced breakers first."""
    shared, own = [
        await pool.fetch(statements.load_snapshot, MAX_SNAPSHOT_BREAKERS)
        for statements in (SHARED, OWN)
    ]
    return BreakerSnapshot(
        as_of=as_of,
        breakers=[BreakerSnapshotEntry(**row) for row in shared],
        tenant_breakers=[BreakerSnapshotEntry(**row) for row in own],
    )


async def _record_deferral(
    connection: asyncpg.Connection, name: BreakerName, changed_at: datetime
) -> None:
    """Begin or end the deferral of the downstream, whose row the caller has locked."""
    await connection.execute(name.statements.record_deferral, *name.columns, changed_at)
