"""The pool of connections: its floor, its ceiling, and how long one waits under it."""

import asyncio

import asyncpg
import pytest
from tests.acceptance.stack import until
from tests.rig.servers import accept_connections, as_role, refuse_connections

from harebell.bootstrap.service_context import open_service
from harebell.contract.errors import DatabaseUnavailable
from harebell.runtime.settings import PoolBounds, ServiceSettings
from harebell.storage.engine import open_pool, translate_db_errors

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

PATIENCE = 0.3  # seconds
AT_ONCE = 100
NAME = "pooled"

_OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"


@pytest.mark.requirement("S57")
async def test_who_finds_no_free_connection_waits_for_its_turn(database_url: str) -> None:
    async with open_pool(database_url, name=NAME, bounds=PoolBounds(max_size=2)) as pool:
        asked = (pool.fetchval("SELECT $1::int FROM pg_sleep(0.01)", n) for n in range(AT_ONCE))
        answers = await asyncio.gather(*asked)
        connections = await pool.fetch(_OURS, NAME)

    assert answers == list(range(AT_ONCE))
    assert len(connections) == 2


@pytest.mark.requirement("S57")
async def test_who_waits_too_long_finds_the_database_away_and_the_pool_whole(
    database_url: str,
) -> None:
    bounds = PoolBounds(max_size=1, acquire_timeout=PATIENCE)
    async with open_pool(database_url, name=NAME, bounds=bounds) as pool:
        async with pool.acquire():
            with pytest.raises(DatabaseUnavailable), translate_db_errors():
                await pool.fetchval("SELECT 1")
        answer = await pool.fetchval("SELECT 1")

    assert answer == 1


async def test_a_table_that_a_migration_changes_between_two_reads_is_read_at_the_next_try(
    database_url: str,
) -> None:
    owner = await asyncpg.connect(database_url)
    await owner.execute("CREATE TABLE growing (id int); INSERT INTO growing VALUES (1)")
    async with open_pool(database_url, name=NAME, bounds=PoolBounds(max_size=1)) as pool:

        async def read() -> asyncpg.Record:
            with translate_db_errors():
                async with pool.acquire() as connection, connection.transaction():
                    return await connection.fetchrow("SELECT growing.* FROM growing")

        before = await read()
        await owner.execute("ALTER TABLE growing ADD COLUMN more int")
        with pytest.raises(DatabaseUnavailable):
            await read()
        after = await read()
    await owner.execute("DROP TABLE growing")
    await owner.close()

    assert (list(before.keys()), list(after.keys())) == (["id"], ["id", "more"])


@pytest.mark.requirement("S57")
async def test_so_many_connections_as_are_kept_open_are_made_again_when_they_are_lost(
    database_url: str,
) -> None:
    owner = await asyncpg.connect(database_url)
    bounds = PoolBounds(min_size=2)

    async def others(than: frozenset[int] = frozenset()) -> frozenset[int] | None:
        pids = frozenset(row["pid"] for row in await owner.fetch(_OURS, NAME))
        return pids if len(pids) == bounds.min_size and not pids & than else None

    async with open_pool(as_role(database_url, "ticker"), name=NAME, bounds=bounds):
        first = await until(others, what="the connections kept open")
        assert first is not None
        await owner.execute("SELECT pg_terminate_backend(p) FROM unnest($1::int[]) AS p", first)
        second = await until(lambda: others(first), what="other connections")
    await owner.close()

    assert second


@pytest.mark.requirement("S57")
async def test_a_service_that_keeps_connections_open_waits_for_its_database(
    amqp_url: str, database_url: str
) -> None:
    owner = await asyncpg.connect(database_url)
    settings = ServiceSettings.load(
        {
            "HAREBELL_AMQP_URL": amqp_url,
            "HAREBELL_DATABASE_URL": as_role(database_url, "dispatcher"),
            "HAREBELL_DATABASE_POOL_MIN": "2",
            "HAREBELL_INSTANCE_ID": NAME,
        }
    )

    async def start(stop: asyncio.Event) -> int:
        async with open_service(settings, "dispatcher", stop) as parts:
            size: int = parts.pool.get_size()
            return size

    await refuse_connections(owner)
    given_up = asyncio.Event()
    starting, in_vain = (asyncio.create_task(start(stop)) for stop in (asyncio.Event(), given_up))
    await asyncio.sleep(PATIENCE)
    was_waiting = not starting.done()
    given_up.set()
    without = await in_vain
    await accept_connections(owner)
    size = await starting
    await owner.close()

    assert was_waiting
    assert (without, size) == (0, 2)
