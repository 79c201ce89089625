"""Breakers on record: of two words the later stands, whatever the order they come in."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.rig.servers import as_role

from harebell.contract.breakers import BreakerEventData, BreakerSnapshotEntry, BreakerState
from harebell.storage.engine import open_pool
from harebell.ticker.store import breakers as store

pytestmark = pytest.mark.postgres

NAME = "http:acme.example"
OPEN, CLOSED = BreakerState.OPEN, BreakerState.CLOSED
NOW = datetime.now(UTC).replace(microsecond=0)
LONG_AGO = NOW - timedelta(hours=2)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(as_role(database_url, "ticker"), name="test") as pool:
        yield pool
        await pool.execute("DELETE FROM breakers")


def found(state: BreakerState, since: datetime = NOW) -> BreakerEventData:
    return BreakerEventData(downstream=NAME, state=state, since=since, failed=3, attempts=4)


async def force(
    pool: asyncpg.Pool,
    forced: BreakerState | None,
    at: datetime = NOW,
    until: datetime | None = None,
) -> bool:
    return await store.force(pool, NAME, forced, at, until=until, note="a roof", actor="ops")


async def only(pool: asyncpg.Pool) -> BreakerSnapshotEntry:
    (kept,) = (await store.load_snapshot(pool, NOW)).breakers
    return kept


async def test_what_was_found_later_stands(pool: asyncpg.Pool) -> None:
    await store.record_state(pool, found(OPEN))
    await store.record_state(pool, found(CLOSED, NOW - timedelta(seconds=1)))
    before = await only(pool)
    await store.record_state(pool, found(CLOSED, NOW + timedelta(seconds=1)))
    after = await only(pool)

    assert (before.state, before.since, before.failed, before.attempts) == (OPEN, NOW, 3, 4)
    assert after.state is CLOSED


async def test_what_is_forced_and_what_was_found_are_kept_apart(pool: asyncpg.Pool) -> None:
    await store.record_state(pool, found(OPEN))
    await force(pool, CLOSED)
    forced = await only(pool)
    await force(pool, None)
    released = await only(pool)

    assert (forced.state, forced.forced) == (OPEN, CLOSED)
    assert (released.state, released.forced) == (OPEN, None)


async def test_an_order_that_comes_again_after_a_later_one_changes_nothing(
    pool: asyncpg.Pool,
) -> None:
    first = await force(pool, OPEN)
    later = await force(pool, None, NOW + timedelta(seconds=1))
    again = await force(pool, OPEN)

    assert (first, later, again) == (True, True, False)
    assert (await only(pool)).forced is None


async def test_a_force_whose_time_is_over_ends_once(pool: asyncpg.Pool) -> None:
    await force(pool, OPEN, LONG_AGO, until=NOW - timedelta(seconds=1))

    (row,) = await store.expire_forced(pool)
    again = await store.expire_forced(pool)

    assert (row["downstream"], row["note"], again) == (NAME, "a roof", [])
    assert (await only(pool)).forced is None


async def test_only_what_was_closed_long_ago_is_forgotten(pool: asyncpg.Pool) -> None:
    await store.record_state(pool, found(CLOSED, LONG_AGO))
    await force(pool, OPEN, LONG_AGO)
    await store.delete_forgotten(pool)
    while_forced = await only(pool)
    await force(pool, None, LONG_AGO + timedelta(minutes=1))
    await store.delete_forgotten(pool)

    assert while_forced.forced is OPEN
    assert (await store.load_snapshot(pool, NOW)).breakers == []


async def test_what_others_are_forced_to_is_counted(pool: asyncpg.Pool) -> None:
    await force(pool, OPEN)

    assert await store.count_other_forced(pool, NAME) == 0
    assert await store.count_other_forced(pool, "task:acme.report") == 1
