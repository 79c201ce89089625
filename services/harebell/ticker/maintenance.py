"""Which release of the zone data next instants were computed by; another one computes them anew."""

import asyncio
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.storage.engine import translate_db_errors
from harebell.storage.migrate import ENSURE
from harebell.storage.runs import rate_limits

HOUSEKEEPING_EVERY: Final = 3600.0  # seconds
FIRST_HOUSEKEEPING: Final = 10.0  # seconds after the start
COMMAND_RESULT_RETENTION: Final = timedelta(hours=24)  # for repeats of a command

_FORGET: Final = "DELETE FROM command_results WHERE created_at < now() - $1::interval"


async def run_maintenance(pool: asyncpg.Pool) -> None:
    """Partitions ahead of time; answers and limits that nobody will ask for. Until cancelled."""
    await asyncio.sleep(FIRST_HOUSEKEEPING)
    while True:
        try:
            with translate_db_errors():
                await pool.execute(ENSURE)
                await pool.execute(_FORGET, COMMAND_RESULT_RETENTION)
                await rate_limits.delete_expired(pool)
        except Transient as error:
            log.warning("housekeeping failed", reason=error.reason)
        await asyncio.sleep(HOUSEKEEPING_EVERY)


_NOTE: Final = """
INSERT INTO tzdata_version AS z (id, version, since) VALUES (1, $1, now())
ON CONFLICT (id) DO UPDATE SET version = excluded.version, since = excluded.since
WHERE z.version <> excluded.version
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
