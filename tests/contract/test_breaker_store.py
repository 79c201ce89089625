"""The statements of breakers, against PostgreSQL: the later of two writes decides."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.rig.servers import as_role

from harebell.contract.breakers import BreakerEventData, BreakerSnapshotEntry, BreakerState
from harebell.domain.run_states import RETENTION
from harebell.storage.engine import open_pool
from harebell.ticker.store import breakers as store

pytestmark = pytest.mark.postgres

NAME = "acme.example:443"
OPEN, CLOSED = BreakerState.OPEN, BreakerState.CLOSED
NOW = datetime.now(UTC).replace(microsecond=0)
LONG_AGO = NOW - timedelta(hours=2)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(as_role(database_url, "ticker"), name="test") as pool:
        yield pool
        await pool.execute("DELETE FROM breakers")
        await pool.execute("DELETE FROM breaker_deferrals")


def reported(state: BreakerState, since: datetime = NOW) -> BreakerEventData:
    return BreakerEventData(downstream=NAME, state=state, since=since, failed=3, attempts=4)


async def force(
    pool: asyncpg.Pool,
    forced: BreakerState | None,
    at: datetime = NOW,
    until: datetime | None = None,
) -> bool:
    return await store.force(
        pool, NAME, forced, at=at, until=until, note="maintenance", actor="ops"
    )


async def only_breaker(pool: asyncpg.Pool) -> BreakerSnapshotEntry:
    (breaker,) = (await store.load_snapshot(pool, NOW)).breakers
    return breaker


async def test_later_reported_state_replaces_an_earlier_one(pool: asyncpg.Pool) -> None:
    await store.record_state(pool, reported(OPEN))
    await store.record_state(pool, reported(CLOSED, NOW - timedelta(seconds=1)))
    before = await only_breaker(pool)
    await store.record_state(pool, reported(CLOSED, NOW + timedelta(seconds=1)))
    after = await only_breaker(pool)

    assert (before.state, before.since, before.failed, before.attempts) == (OPEN, NOW, 3, 4)
    assert after.state is CLOSED


async def test_forced_and_reported_states_are_independent(pool: asyncpg.Pool) -> None:
    await store.record_state(pool, reported(OPEN))
    await force(pool, CLOSED)
    forced = await only_breaker(pool)
    await force(pool, None)
    reset = await only_breaker(pool)

    assert (forced.state, forced.forced) == (OPEN, CLOSED)
    assert (reset.state, reset.forced) == (OPEN, None)


async def test_command_that_is_repeated_after_a_later_one_changes_nothing(
    pool: asyncpg.Pool,
) -> None:
    first = await force(pool, OPEN)
    later = await force(pool, None, NOW + timedelta(seconds=1))
    repeated = await force(pool, OPEN)

    assert (first, later, repeated) == (True, True, False)
    assert (await only_breaker(pool)).forced is None


async def test_forced_state_expires_once_after_its_time(pool: asyncpg.Pool) -> None:
    await force(pool, OPEN, LONG_AGO, until=NOW - timedelta(seconds=1))

    (row,) = await store.expire_forced(pool)
    repeated = await store.expire_forced(pool)

    assert (row["downstream"], row["note"], repeated) == (NAME, "maintenance", [])
    assert (await only_breaker(pool)).forced is None


async def test_only_breakers_that_have_been_closed_for_an_hour_are_deleted(
    pool: asyncpg.Pool,
) -> None:
    await store.record_state(pool, reported(CLOSED, LONG_AGO))
    await force(pool, OPEN, LONG_AGO)
    await store.delete_forgotten(pool)
    while_forced = await only_breaker(pool)
    await force(pool, None, LONG_AGO + timedelta(minutes=1))
    await store.delete_forgotten(pool)

    assert while_forced.forced is OPEN
    assert (await store.load_snapshot(pool, NOW)).breakers == []


async def test_count_of_forced_breakers_omits_the_downstream(pool: asyncpg.Pool) -> None:
    await force(pool, OPEN)

    assert await store.count_other_forced(pool, NAME) == 0
    assert await store.count_other_forced(pool, "task:acme.report") == 1


async def test_reason_and_next_probe_of_the_later_state_are_stored(pool: asyncpg.Pool) -> None:
    opened = reported(OPEN).model_copy(
        update={"reason": "probe_failed", "next_probe_at": NOW + timedelta(seconds=30)}
    )
    await store.record_state(pool, opened)
    open_row = await pool.fetchrow("SELECT reason, next_probe_at FROM breakers")
    await store.record_state(pool, reported(CLOSED, NOW + timedelta(seconds=31)))
    closed_row = await pool.fetchrow("SELECT reason, next_probe_at FROM breakers")

    assert tuple(open_row) == ("probe_failed", NOW + timedelta(seconds=30))
    assert tuple(closed_row) == (None, None)


async def deferrals(pool: asyncpg.Pool) -> list[tuple[datetime, datetime | None]]:
    rows = await pool.fetch("SELECT since, until FROM breaker_deferrals ORDER BY since")
    return [(row["since"], row["until"]) for row in rows]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


async def test_deferral_lasts_from_the_first_open_state_to_the_next_closed_one(
    pool: asyncpg.Pool,
) -> None:
    for state, second in ((OPEN, 0), (BreakerState.HALF_OPEN, 30), (OPEN, 31)):
        await store.record_state(pool, reported(state, at(second)))
    lasting = await deferrals(pool)
    await store.record_state(pool, reported(CLOSED, at(70)))
    await store.record_state(pool, reported(OPEN, at(40)))  # an old report
    ended = await deferrals(pool)
    await store.record_state(pool, reported(OPEN, at(80)))

    assert lasting == [(NOW, None)]
    assert ended == [(NOW, at(70))]
    assert await deferrals(pool) == [(NOW, at(70)), (at(80), None)]


async def test_forced_state_begins_and_ends_the_deferral(pool: asyncpg.Pool) -> None:
    await force(pool, OPEN)
    await store.record_state(pool, reported(CLOSED, at(1)))
    await force(pool, CLOSED, at(10))
    await store.record_state(pool, reported(OPEN, at(20)))
    forced_closed = await deferrals(pool)
    await force(pool, None, at(30))

    assert forced_closed == [(NOW, at(10))]
    assert await deferrals(pool) == [(NOW, at(10)), (at(30), None)]


async def test_deferral_ends_with_the_forced_time(pool: asyncpg.Pool) -> None:
    until = NOW - timedelta(minutes=5)
    await force(pool, OPEN, LONG_AGO, until)

    await store.expire_forced(pool)

    assert await deferrals(pool) == [(LONG_AGO, until)]


async def test_deferral_is_deleted_with_the_runs_of_its_time(pool: asyncpg.Pool) -> None:
    old, recent = NOW - RETENTION - timedelta(hours=1), NOW - timedelta(days=29)
    for time in (old, recent):
        await pool.execute("INSERT INTO breaker_deferrals VALUES ($1, $2, $2)", NAME, time)
    await force(pool, OPEN)

    await store.delete_forgotten(pool)

    assert await deferrals(pool) == [(recent, recent), (NOW, None)]
