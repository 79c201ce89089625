"""The metrics of held snapshots, with sessions that hold snapshots in PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from prometheus_client import REGISTRY
from tests.rig.servers import Servers, as_role

from harebell.storage.engine import open_pool
from harebell.storage.snapshot_holders import SnapshotHolder, load_snapshot_holders
from harebell.ticker import held_snapshots
from harebell.ticker.held_snapshots import HeldSnapshotMetrics

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("S114")]

NAME = "forgotten-report"
CONSUME_ID = "SELECT pg_current_xact_id()"


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(as_role(database_url, "ticker"), name="test") as opened:
        yield opened


@asynccontextmanager
async def session(url: str, isolation: str) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection of the dispatcher's role in a transaction that has read."""
    connection = await asyncpg.connect(
        as_role(url, "dispatcher"), server_settings={"application_name": NAME}
    )
    try:
        async with connection.transaction(isolation=isolation):
            await connection.execute("SELECT 1")  # `fetchval` keeps a cursor open
            yield connection
    finally:
        await connection.close()


async def holders(pool: asyncpg.Pool, name: str = NAME) -> list[SnapshotHolder]:
    """Return the holders with this name, after a transaction that is newer than their snapshots."""
    await pool.execute(CONSUME_ID)
    return [each for each in await load_snapshot_holders(pool) if each.application_name == name]


async def test_ticker_reads_the_holder_of_a_snapshot_without_rights_on_its_session(
    pool: asyncpg.Pool, database_url: str
) -> None:
    async with session(database_url, "repeatable_read") as connection:
        pid = connection.get_server_pid()
        [found] = await holders(pool)

    assert (found.kind, found.pid, found.username) == ("session", pid, "harebell_dispatcher")
    assert found.state == "idle in transaction"
    assert found.transactions >= 1
    assert found.held_since is not None
    assert found.held_since <= found.read_at
    assert await holders(pool) == []


async def test_idle_transaction_without_a_snapshot_is_no_holder(
    pool: asyncpg.Pool, database_url: str
) -> None:
    async with session(database_url, "read_committed") as connection:
        without = await holders(pool)
        await connection.execute(CONSUME_ID)
        [writer] = await holders(pool)

    assert without == []
    assert writer.transactions >= 1


async def test_session_of_another_database_is_no_holder(
    pool: asyncpg.Pool, servers: Servers
) -> None:
    connection = await asyncpg.connect(
        servers.database_url, server_settings={"application_name": NAME}
    )
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT 1")
            assert await holders(pool) == []
    finally:
        await connection.close()


async def test_function_is_only_for_the_ticker_and_the_auditor(database_url: str) -> None:
    for role, may in {"ticker": True, "auditor": True, "intake": False, "executor": False}.items():
        connection = await asyncpg.connect(as_role(database_url, role))
        try:
            if may:
                await load_snapshot_holders(connection)
            else:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await load_snapshot_holders(connection)
        finally:
            await connection.close()


def shown(metric: str, pid: int) -> float | None:
    labels = {
        "kind": "session",
        "pid": str(pid),
        "application_name": NAME,
        "user": "harebell_dispatcher",
    }
    return REGISTRY.get_sample_value(metric, labels)


async def test_metrics_name_the_holder_while_it_exists(
    pool: asyncpg.Pool, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = HeldSnapshotMetrics(pool)
    async with session(database_url, "repeatable_read") as connection:
        pid = connection.get_server_pid()
        await pool.execute(CONSUME_ID)
        await metrics.refresh()
        before = shown("harebell_held_snapshot_age_seconds", pid)
        monkeypatch.setattr(held_snapshots, "MIN_NAMED_AGE", 0.0)
        await metrics.refresh()

        assert before is None
        assert (shown("harebell_held_snapshot_age_seconds", pid) or 0) > 0
        assert (shown("harebell_held_snapshot_transactions", pid) or 0) >= 1
        assert (REGISTRY.get_sample_value("harebell_oldest_snapshot_age_seconds") or 0) > 0
    await metrics.refresh()

    assert shown("harebell_held_snapshot_age_seconds", pid) is None
    assert shown("harebell_held_snapshot_transactions", pid) is None
