"""Maintenance by the ticker: partitions ahead, expired rows, and a changed time zone database."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import asyncpg
import pytest
from tests.fakes.stored_schedules import schedule_ids, store_schedules
from tests.rig.servers import as_role
from tests.simulation.loop import virtual_time

from harebell.contract.ids import RunKey
from harebell.domain.run_states import NewRun, Placement
from harebell.runtime.settings import PoolBounds
from harebell.storage.engine import open_pool
from harebell.storage.runs import staging
from harebell.ticker.maintenance import (
    FIRST_MAINTENANCE_DELAY,
    MAINTENANCE_INTERVAL,
    maintain,
    record_tzdata_version,
    run_maintenance,
)

DAYS_AHEAD: Final = 7  # days of runs that must have a partition until the next maintenance
PARTITIONS: Final = """
SELECT child.relname FROM pg_inherits
JOIN pg_class child ON child.oid = inhrelid JOIN pg_class parent ON parent.oid = inhparent
WHERE parent.relname IN ('runs', 'attempts') ORDER BY child.relname DESC
"""
INSERT_RATE_LIMITS: Final = """
INSERT INTO rate_limits (key, expires_at)
SELECT minutes::text, now() + make_interval(mins => minutes) FROM unnest($1::int[]) AS minutes
"""


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool with the rights of a ticker."""
    url = as_role(database_url, "ticker")
    async with open_pool(url, name="test", bounds=PoolBounds(max_size=4)) as opened:
        yield opened


def run_in(days: int) -> NewRun:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    key = RunKey(at, *schedule_ids(1))
    return NewRun(key, Placement("acme", 1, "default", "normal", 5), at, None)


async def test_runs_of_the_next_days_have_partitions_after_maintenance(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    for (name,) in (await owner.fetch(PARTITIONS))[: 4 * DAYS_AHEAD]:
        await owner.execute(f"DROP TABLE {name}")
    async with pool.acquire() as connection:
        with pytest.raises(asyncpg.CheckViolationError):
            await staging.stage(connection, [run_in(1)])

    await maintain(pool)
    await maintain(pool)  # a repeat is harmless

    runs = [run_in(days) for days in range(DAYS_AHEAD + 1)]
    async with pool.acquire() as connection:
        assert len(await staging.stage(connection, runs)) == len(runs)


async def test_rate_limits_are_deleted_after_their_expiry(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    await owner.execute(INSERT_RATE_LIMITS, [-1, 30])

    await maintain(pool)

    assert [row[0] for row in await owner.fetch("SELECT key FROM rate_limits")] == ["30"]


async def test_changed_time_zone_database_makes_each_active_schedule_due(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    (schedule,) = schedule_ids(1)
    next_at = "SELECT next_at > now() FROM schedule_state"
    await store_schedules(pool, [schedule], {"cron": "0 9 * * *"}, datetime.now(UTC))
    await record_tzdata_version(pool, "2026a")
    await record_tzdata_version(pool, "2026a")
    assert await owner.fetchval(next_at)

    await record_tzdata_version(pool, "2026b")

    assert not await owner.fetchval(next_at)


class FailingPool:
    """A pool that rejects its first statement and counts the others."""

    def __init__(self) -> None:
        self.statements = 0
        self.failures = 1

    async def execute(self, *_: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise asyncpg.CannotConnectNowError("The database starts.")
        self.statements += 1


def test_maintenance_continues_after_a_failure_at_its_next_interval() -> None:
    pool = FailingPool()

    async def run() -> None:
        task = asyncio.create_task(run_maintenance(cast("Any", pool)))
        await asyncio.sleep(FIRST_MAINTENANCE_DELAY + MAINTENANCE_INTERVAL / 2)
        assert (pool.failures, pool.statements) == (0, 0)
        assert not task.done()
        await asyncio.sleep(MAINTENANCE_INTERVAL)
        task.cancel()

    with virtual_time() as loop:
        loop.run_until_complete(run())

    assert pool.statements == 3
