"""The ledger that its SQL is tried on: one database for the suite, empty for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.servers import Servers

from harebell.kernel.db.engine import open_pool
from harebell.kernel.settings import PoolBounds

CONNECTIONS = 50  # as many as there are claimants at once


@pytest.fixture(scope="session")
def ledger_url(servers: Servers) -> Iterator[str]:
    with asyncio.Runner() as runner:
        url = runner.run(servers.make_database())
        yield url
        runner.run(servers.drop_database(url))


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Reached as hot paths reach it."""
    async with open_pool(
        ledger_url, name="contract tests", bounds=PoolBounds(most=CONNECTIONS)
    ) as pool:
        yield pool
        await pool.execute("DELETE FROM runs")
        await pool.execute("DELETE FROM attempts")
        await pool.execute("DELETE FROM turns")
