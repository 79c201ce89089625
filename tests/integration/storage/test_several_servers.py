"""A database URL with several servers: silent, closed and standby servers are passed over."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.rig.listener import listening
from tests.rig.servers import Servers

from harebell.audit.store import connect_read_only
from harebell.contract.errors import DatabaseUnavailable
from harebell.storage.engine import connect, open_pool, translate_db_errors

pytestmark = pytest.mark.postgres

TIMEOUT = 2.0  # seconds for one server, on a busy machine


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Yield the port of a server that accepts connections and never answers."""

    async def wait(*_: object) -> None:
        await asyncio.Event().wait()

    async with listening(wait) as port:
        yield port


def with_first(url: str, port: int, query: str = "") -> str:
    """Return the URL with another server before its own."""
    parts = urlsplit(url)
    login, _, address = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login}@127.0.0.1:{port},{address}", query=query).geturl()


async def test_silent_first_server_does_not_hide_the_second_and_is_then_the_last(
    servers: Servers,
) -> None:
    async with silent_server() as port:
        url = with_first(servers.database_url, port)
        first = await connect(url, timeout=TIMEOUT)
        began = time.monotonic()
        second = await connect(url, timeout=TIMEOUT)
        seconds = time.monotonic() - began
        for connection in (first, second):
            await connection.close()

    assert seconds < TIMEOUT


async def test_each_kind_of_connection_passes_over_a_closed_server(servers: Servers) -> None:
    async with silent_server() as port:
        pass
    url = with_first(servers.database_url, port, "target_session_attrs=read-write")

    async with open_pool(url, name="several servers") as pool:
        assert await pool.fetchval("SELECT 1") == 1
    async with connect_read_only(url) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_primary_is_no_standby(servers: Servers) -> None:
    url = with_first(servers.database_url, 1, "target_session_attrs=standby")

    with pytest.raises(asyncpg.InternalClientError, match="target attribute"):
        await connect(url, timeout=TIMEOUT)


async def test_write_on_a_read_only_server_is_an_outage(servers: Servers) -> None:
    connection = await connect(servers.database_url)
    try:
        await connection.execute("SET default_transaction_read_only = on")
        with pytest.raises(DatabaseUnavailable), translate_db_errors():
            await connection.execute("CREATE TABLE never (id int)")
    finally:
        await connection.close()
