"""Hourly maintenance of the database, and changes of the time zone database."""

import asyncio
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.storage import tenant_usage
from harebell.storage.engine import translate_db_errors
from harebell.storage.migrate import ENSURE_PARTITIONS
from harebell.storage.runs import rate_limits

MAINTENANCE_INTERVAL: Final = 3600.0  # seconds
FIRST_MAINTENANCE_DELAY: Final = 10.0  # seconds after the start

_RECORD_TZDATA_VERSION: Final = """
INSERT INTO tzdata_version AS z (id, version, since) VALUES (1, $1, now())
ON CONFLICT (id) DO UPDATE SET version = excluded.version, since = excluded.since
WHERE z.version <> excluded.version
RETURNING xmax <> 0 AS changed
"""
# The next pass computes the next times again from the planning cursors.
_PLAN_ALL_AGAIN: Final = """
UPDATE schedule_state SET next_at = least(next_at, now())
WHERE state = 'active' AND next_at IS NOT NULL
"""
log = structlog.get_logger()


async def record_tzdata_version(pool: asyncpg.Pool, version: str) -> None:
    """Record the version of the time zone database, and plan all schedules after a change.

    Raise `DatabaseUnavailable` if PostgreSQL does not respond.
    """
    with translate_db_errors():
        async with pool.acquire() as connection, connection.transaction():
            has_changed = await connection.fetchval(_RECORD_TZDATA_VERSION, version)
            if has_changed:
                result = await connection.execute(_PLAN_ALL_AGAIN)
                log.warning("time zone database changed", version=version, schedules=result)


async def run_maintenance(pool: asyncpg.Pool) -> None:
    """Maintain the database regularly until the task is cancelled."""
    await asyncio.sleep(FIRST_MAINTENANCE_DELAY)
    while True:
        try:
            await maintain(pool)
        except Transient as error:
            log.warning("maintenance failed", error=error.code, reason=error.reason)
        await asyncio.sleep(MAINTENANCE_INTERVAL)


async def maintain(pool: asyncpg.Pool) -> None:
    """Create the partitions of the next days, and delete expired rows of other tables.

    Raise `DatabaseUnavailable`.
    """
    with translate_db_errors():
        await pool.execute(ENSURE_PARTITIONS)
        await rate_limits.delete_expired(pool)
        await tenant_usage.delete_expired(pool)
