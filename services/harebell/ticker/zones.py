"""Which release of the zone data next instants were computed by; another one computes them anew."""

from typing import Final

import asyncpg
import structlog

from harebell.kernel.db.engine import translate_db_errors

_NOTE: Final = """
INSERT INTO zone_data AS z (id, release, since) VALUES (1, $1, now())
ON CONFLICT (id) DO UPDATE SET release = excluded.release, since = excluded.since
WHERE z.release <> excluded.release
RETURNING xmax <> 0 AS changed
"""
# What has not been handed over yet is looked at again at once, from where planning stands.
_PLAN_AGAIN: Final = """
UPDATE schedule_state SET next_at = least(next_at, now())
WHERE state = 'active' AND next_at IS NOT NULL
"""

log = structlog.get_logger()


async def record_tzdata_version(pool: asyncpg.Pool, release: str) -> None:
    """Raises `DatabaseUnavailable`."""
    with translate_db_errors():
        async with pool.acquire() as connection, connection.transaction():
            changed = await connection.fetchval(_NOTE, release)
            if changed:
                told = await connection.execute(_PLAN_AGAIN)
                log.warning("zone data changed", release=release, schedules=told)
