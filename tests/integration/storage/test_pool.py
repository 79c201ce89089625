"""The pool of connections: its minimum, its maximum and the wait for a free connection."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from tests.rig.polling import until
from tests.rig.servers import accept_connections, as_role, refuse_connections

from harebell.bootstrap.service_context import open_service
from harebell.contract.errors import DatabaseUnavailable
from harebell.runtime.settings import PoolBounds, ServiceSettings
from harebell.storage.engine import open_pool, translate_db_errors

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ACQUIRE_TIMEOUT = 0.3  # seconds
CONCURRENT_STATEMENTS = 100
NAME = "pooled"

_PLAN = "EXPLAIN (ANALYZE, TIMING OFF) SELECT sum(n) FROM generate_series(1, 1000) AS n"
_PREPARED = "SELECT name FROM pg_prepared_statements"
_CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"


@pytest.mark.requirement("S57")
async def test_statement_waits_when_no_connection_is_free(database_url: str) -> None:
    async with open_pool(database_url, name=NAME, bounds=PoolBounds(max_size=2)) as pool:
        statements = (
            pool.fetchval("SELECT $1::int FROM pg_sleep(0.01)", n)
            for n in range(CONCURRENT_STATEMENTS)
        )
        results = await asyncio.gather(*statements)
        connections = await pool.fetch(_CONNECTIONS, NAME)

    assert results == list(range(CONCURRENT_STATEMENTS))
    assert len(connections) == 2


@pytest.mark.requirement("S57")
async def test_statement_raises_when_it_waits_too_long_and_the_pool_stays_usable(
    database_url: str,
) -> None:
    bounds = PoolBounds(max_size=1, acquire_timeout=ACQUIRE_TIMEOUT)
    async with open_pool(database_url, name=NAME, bounds=bounds) as pool:
        async with pool.acquire():
            with pytest.raises(DatabaseUnavailable), translate_db_errors():
                await pool.fetchval("SELECT 1")
        result = await pool.fetchval("SELECT 1")

    assert result == 1


async def test_statement_stays_prepared_for_more_than_an_hour(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def prepared_after(hours: int) -> str:
        with monkeypatch.context() as later:
            later.setattr(loop, "time", lambda: began + timedelta(hours=hours).total_seconds())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        name: str = await connection.fetchval(_PREPARED)
        return name

    async with open_pool(database_url, name=NAME) as pool, pool.acquire() as connection:
        names = [await prepared_after(hours) for hours in (0, 1, 2)]

    assert names[0] == names[1] != names[2]


async def test_idle_connection_has_keepalives_each_minute(database_url: str) -> None:
    async with open_pool(database_url, name=NAME) as pool:
        seconds = await pool.fetchval("SELECT current_setting('tcp_keepalives_idle')")

    assert seconds == "60"


@pytest.mark.parametrize("hot", [True, False])
async def test_no_plan_is_compiled_at_any_cost(database_url: str, *, hot: bool) -> None:
    async with open_pool(database_url, name=NAME, hot=hot) as pool, pool.acquire() as connection:
        await connection.execute("SET jit_above_cost = 0")
        plan = await connection.fetch(_PLAN)
        await connection.execute("SET jit = on")
        if not await connection.fetchval("SELECT pg_jit_available()"):
            pytest.skip("This PostgreSQL compiles no plan.")
        compiled = await connection.fetch(_PLAN)

    assert ("JIT:",) in map(tuple, compiled)
    assert ("JIT:",) not in map(tuple, plan)


async def test_statement_succeeds_at_its_second_try_when_a_migration_changes_its_table(
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
async def test_pool_opens_its_minimum_of_connections_again_after_a_loss(
    database_url: str,
) -> None:
    owner = await asyncpg.connect(database_url)
    bounds = PoolBounds(min_size=2)

    async def open_connections(besides: frozenset[int] = frozenset()) -> frozenset[int] | None:
        pids = frozenset(row["pid"] for row in await owner.fetch(_CONNECTIONS, NAME))
        return pids if len(pids) == bounds.min_size and not pids & besides else None

    async with open_pool(as_role(database_url, "ticker"), name=NAME, bounds=bounds):
        first = await until(open_connections, what="the minimum of connections")
        assert first is not None
        await owner.execute("SELECT pg_terminate_backend(p) FROM unnest($1::int[]) AS p", first)
        second = await until(lambda: open_connections(first), what="new connections")
    await owner.close()

    assert second


@pytest.mark.requirement("S57")
async def test_service_with_a_minimum_of_connections_waits_for_its_database(
    amqp_url: str, database_url: str
) -> None:
    owner = await asyncpg.connect(database_url)
    settings = ServiceSettings.load(
        {
            "HAREBELL_AMQP_URL": amqp_url,
            "HAREBELL_DATABASE_URL": as_role(database_url, "dispatcher"),
            "HAREBELL_DATABASE_POOL_MIN": "2",
            "HAREBELL_INSTANCE_ID": NAME,
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }
    )

    async def start(stop: asyncio.Event) -> int:
        async with open_service(settings, "dispatcher", stop) as context:
            size: int = context.pool.get_size()
            return size

    await refuse_connections(owner)
    stop = asyncio.Event()
    starting, stopping = (asyncio.create_task(start(each)) for each in (asyncio.Event(), stop))
    await asyncio.sleep(ACQUIRE_TIMEOUT)
    was_waiting = not starting.done()
    stop.set()
    stopped_size = await stopping
    await accept_connections(owner)
    size = await starting
    await owner.close()

    assert was_waiting
    assert (stopped_size, size) == (0, 2)
