"""The statements with which several tickers share the due schedules, on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.fakes.stored_schedules import schedule_ids, store_schedules
from tests.rig.servers import as_role

from harebell.runtime.settings import PoolBounds
from harebell.storage.engine import open_pool
from harebell.ticker.store import schedules
from harebell.ticker.store.versions import VersionCache

TIMEOUT = 2.0  # seconds, less than PostgreSQL lets a statement wait for a lock
COUNT = 6


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    url = as_role(database_url, "ticker")
    async with open_pool(url, name="test", bounds=PoolBounds(max_size=4)) as opened:
        yield opened


@pytest.fixture
async def stored(pool: asyncpg.Pool) -> list[UUID]:
    """Return schedules in the order of their next times, which is not the order of their ids."""
    ids = sorted(schedule_ids(COUNT), reverse=True)
    now = datetime.now(UTC)
    for number, each in enumerate(ids):
        await store_schedules(pool, [each], {"after": f"{number + 1}s"}, now)
    return ids


async def load(
    connection: asyncpg.Connection, limit: int, only: schedules.TenantFilter | None = None
) -> list[UUID]:
    until = datetime.now(UTC) + timedelta(minutes=1)
    records = await schedules.load_due(connection, VersionCache(), until, limit=limit, only=only)
    return [record.id for record in records]


async def test_pass_loads_the_schedules_with_the_earliest_next_times(
    pool: asyncpg.Pool, stored: list[UUID]
) -> None:
    async with pool.acquire() as connection, connection.transaction():
        assert await load(connection, COUNT // 2) == stored[: COUNT // 2]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("are_included", [True, False])
async def test_pass_loads_only_the_schedules_of_some_tenants(
    pool: asyncpg.Pool, stored: list[UUID], *, are_included: bool
) -> None:
    others = schedule_ids(2, first=COUNT)
    await store_schedules(pool, others, {"after": "1s"}, datetime.now(UTC), tenant="acme")
    only = schedules.TenantFilter(["acme", "absent"], are_included=are_included)

    async with pool.acquire() as connection, connection.transaction():
        loaded = await load(connection, 2, only)

    assert set(loaded) == set(others if are_included else stored[:2])


async def test_two_tickers_load_different_schedules_and_wait_for_no_lock(
    pool: asyncpg.Pool, stored: list[UUID]
) -> None:
    async with pool.acquire() as one, one.transaction(), pool.acquire() as other:
        first = await load(one, COUNT // 2)
        async with other.transaction(), asyncio.timeout(TIMEOUT):
            second = await load(other, COUNT)

    assert first == stored[: COUNT // 2]
    assert second == stored[COUNT // 2 :]


async def test_schedule_with_the_earliest_next_time_is_marked_as_errored(
    pool: asyncpg.Pool, stored: list[UUID]
) -> None:
    until = datetime.now(UTC) + timedelta(minutes=1)

    assert await schedules.mark_next_errored(pool, until, "a reason") == stored[0]

    row = await pool.fetchrow(
        "SELECT state, next_at, reason FROM schedule_state WHERE schedule_id = $1", stored[0]
    )
    assert tuple(row) == ("errored", None, "a reason")
