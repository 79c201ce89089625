"""Services behind pgbouncer in transaction mode, which is killed and started again under load."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest
from tests.acceptance.faults import assert_each_once, put_spread, until_called, until_ready
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.rig.pooler import TransactionPooler
from tests.rig.servers import Servers, as_role, server_directory

from harebell.contract.errors import InvalidInput
from harebell.dev.plan import ServiceCounts
from harebell.storage.engine import HOT_PATH_SETTINGS, role_defaults
from harebell.storage.migrate import migrate

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS = ServiceCounts(tickers=2, executors=2)
LOAD = 200
HOURLY = 20  # planned runs of the next 24 hours, of which the ends may be incomplete
READY_TIMEOUT = 30.0  # seconds from an open port until every service works again


@pytest.fixture(scope="module")
def pooler(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TransactionPooler]:
    with (
        server_directory(tmp_path_factory.mktemp("pooler")) as directory,
        TransactionPooler.open(directory, servers.database_url) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def stack(
    servers: Servers, pooler: TransactionPooler, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("pooled")) as opened:
        asyncio.run(set_role_defaults(opened.database_url))
        for kind, number in COUNTS.members():
            url = pooler.url(as_role(opened.database_url, kind))
            opened.start_one(kind, number, HAREBELL_DATABASE_URL=url)
        yield opened


async def set_role_defaults(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        (name,) = await connection.fetchrow("SELECT current_database()")
        for statement in role_defaults(name):
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.mark.long
async def test_session_behind_the_pooler_has_the_settings_of_its_role(
    stack: Stack, pooler: TransactionPooler
) -> None:
    connection = await asyncpg.connect(
        pooler.url(as_role(stack.database_url, "executor")).partition("?")[0],
        statement_cache_size=0,
    )
    try:
        found = {
            name: await connection.fetchval("SELECT current_setting($1)", name)
            for name in (*HOT_PATH_SETTINGS, "jit", "statement_timeout")
        }
    finally:
        await connection.close()

    assert found == {**HOT_PATH_SETTINGS, "jit": "off", "statement_timeout": "10s"}


@pytest.mark.long
async def test_runs_execute_once_when_the_pooler_is_killed_under_load(
    stack: Stack, pooler: TransactionPooler, target: Target
) -> None:
    async with stack.tenant("pooled") as tenant:
        expected = await put_spread(tenant, target.http("pooled"), LOAD, first=1, over=8)
        await tenant.put(
            "queued",
            {"every": "1s", "times": 6},
            target.http("queued", sleep=0.2),
            overlap="queue",
        )
        await until_called(target, "pooled", LOAD // 4)
        await asyncio.to_thread(pooler.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(pooler.start)
        await until_ready(stack, COUNTS, within=READY_TIMEOUT)
        runs = await tenant.until_runs(LOAD + 6, "succeeded", within=60)
        shown = [each async for each in tenant.harebell.schedules()]
        # The forecast reads its schedules in parts, with a cursor of the server.
        await tenant.put("hourly", {"every": "1h"}, target.http("hourly"))
        forecasts = [await tenant.harebell.forecast(own=True) for _ in range(3)]

    ids = {row["schedule_id"] for row in runs}
    assert len(set(expected)) == LOAD
    assert len(shown) == len(ids)
    pooled = [row for row in runs if str(row["schedule_id"]) in expected]
    assert_each_once(target.calls("pooled"), pooled, LOAD)
    assert len(target.calls("queued")) == 6
    planned = [sum(filter(None, each.runs)) for each in forecasts]
    assert min(planned) >= HOURLY
    assert "prepared statement" not in "".join(text for _, text in stack.log_tails(1000))


async def test_migration_refuses_a_pooler(stack: Stack, pooler: TransactionPooler) -> None:
    with pytest.raises(InvalidInput, match="must connect to PostgreSQL directly"):
        await migrate(pooler.url(stack.database_url))
