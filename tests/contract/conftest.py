"""The two ledgers of the contract tests: PostgreSQL, emptied after each test, and memory.

A test with the fixture `ledger` runs with both.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.contract import memory_rows
from tests.fakes.ledger.ledger import open_ledger
from tests.rig.servers import Servers

from harebell.runtime.settings import PoolBounds
from harebell.storage.engine import open_pool

CONNECTIONS = 50  # the maximum of concurrent claims in a test
IN_MEMORY = "memory"
POSTGRESQL = "postgresql"
ANSWERING = memory_rows  # the import registers its answers


@pytest.fixture(
    scope="session", params=[pytest.param(POSTGRESQL, marks=pytest.mark.postgres), IN_MEMORY]
)
def ledger_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == IN_MEMORY:
        yield IN_MEMORY
        return
    servers: Servers = request.getfixturevalue("servers")
    with asyncio.Runner() as runner:
        url = runner.run(servers.make_database())
        yield url
        runner.run(servers.drop_database(url))


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool with the settings of the hot paths."""
    if ledger_url == IN_MEMORY:
        yield open_ledger()
        return
    async with open_pool(
        ledger_url, name="contract tests", bounds=PoolBounds(max_size=CONNECTIONS)
    ) as pool:
        yield pool
        await pool.execute("DELETE FROM runs")
        await pool.execute("DELETE FROM attempts")
        await pool.execute("DELETE FROM overlap_slots")
        await pool.execute("DELETE FROM label_slots")
        await pool.execute("DELETE FROM rate_limits")
        await pool.execute("UPDATE ledger_epoch SET base = 0")
