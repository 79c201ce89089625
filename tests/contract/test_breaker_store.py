"""The statements of breakers, against PostgreSQL: the later of two writes decides."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import asyncpg
import orjson
import pytest
from tests.fakes.publisher import FakePublisher
from tests.fakes.replies import RecordedReplies
from tests.rig.servers import as_role

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import CHANGES, OPERATIONS_TENANT
from harebell.contract.breakers import BreakerEventData, BreakerSnapshotEntry, BreakerState
from harebell.contract.json_codec import encode
from harebell.domain.run_states import RETENTION
from harebell.domain.sender import IdentityMode
from harebell.messaging.accepted_messages import CommandReplies
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.received_message import ReceivedMessage
from harebell.storage.engine import open_pool
from harebell.ticker.breakers import BreakerRecorder
from harebell.ticker.store import breakers as store

pytestmark = pytest.mark.postgres

NAME = "acme.example:443"
SHARED = store.BreakerName(NAME)
TABLES = ("breakers", "breaker_deferrals", "tenant_breakers", "tenant_breaker_deferrals")
OPEN, CLOSED = BreakerState.OPEN, BreakerState.CLOSED
NOW = datetime.now(UTC).replace(microsecond=0)
OPEN_DEFERRALS: Final = (
    "SELECT count(*) FROM tenant_breaker_deferrals WHERE until IS NULL",
    "SELECT count(*) FROM breaker_deferrals WHERE until IS NULL",
)
LONG_AGO = NOW - timedelta(hours=2)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(as_role(database_url, "ticker"), name="test") as pool:
        yield pool
        for table in TABLES:
            await pool.execute(f"DELETE FROM {table}")  # noqa: S608  # the names are constants


def reported(state: BreakerState, since: datetime = NOW) -> BreakerEventData:
    return BreakerEventData(downstream=NAME, state=state, since=since, failed=3, attempts=4)


async def force(
    pool: asyncpg.Pool,
    forced: BreakerState | None,
    at: datetime = NOW,
    until: datetime | None = None,
    *,
    name: store.BreakerName = SHARED,
) -> bool:
    return await store.force(
        pool, name, forced, at=at, until=until, note="maintenance", actor="ops"
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


@pytest.mark.parametrize("name", [SHARED, store.BreakerName(NAME, "acme")])
async def test_later_of_two_commands_at_once_decides_in_each_order(
    pool: asyncpg.Pool, name: store.BreakerName
) -> None:
    """Force the breaker on several connections: first without a row, and then with one."""
    for number in range(10):
        at = NOW + timedelta(seconds=number)
        later = at + timedelta(milliseconds=1)
        orders = [force(pool, OPEN, at, name=name), force(pool, CLOSED, later, name=name)]
        if number % 2:
            orders.reverse()
        await asyncio.gather(*orders)

        snapshot = await store.load_snapshot(pool, NOW)
        (breaker,) = snapshot.breakers if name.tenant is None else snapshot.tenant_breakers
        lasting = await pool.fetchval(OPEN_DEFERRALS[name.tenant is None])
        assert (breaker.forced, lasting) == (CLOSED, 0)


async def test_commands_of_one_time_have_different_events_and_repeats_have_the_same(
    pool: asyncpg.Pool,
) -> None:
    publisher = FakePublisher()
    recorder = BreakerRecorder(
        pool=pool,
        publisher=publisher,
        replies=CommandReplies(RecordedReplies(publisher.published), IdentityMode.ROUTING_KEY),
        clock=cast("Any", None),
    )
    deliveries = [command("breaker.open"), command("breaker.close"), command("breaker.reset")]

    for _ in range(2):
        await recorder.handle(deliveries)

    ids = [event["id"] for message in publisher.published for event in orjson.loads(message.body)]
    assert (len(ids), len(set(ids))) == (6, 3)
    assert ids[:3] == ids[3:]
    assert (await only_breaker(pool)).forced is None


def command(verb: str) -> Delivery:
    """Return the delivery of an accepted command about the downstream."""
    accepted = AcceptedCommands(
        tenant=OPERATIONS_TENANT,
        verb=verb,
        actor="ops",
        accepted_at=NOW,
        single=True,
        items=[AcceptedCommand(index=0, body={"downstream": NAME})],
    )
    return Delivery(ReceivedMessage(body=encode(accepted), exchange=CHANGES), "harebell.breakers")


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

    assert await store.count_other_forced(pool, SHARED) == 0
    assert await store.count_other_forced(pool, store.BreakerName("task:acme.report")) == 1


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


@pytest.mark.requirement("P5")
async def test_breaker_of_a_tenant_has_a_row_and_deferrals_of_its_own(pool: asyncpg.Pool) -> None:
    own = reported(OPEN).model_copy(update={"tenant": "acme"})
    await store.record_state(pool, own)
    await store.record_state(pool, reported(CLOSED))
    await force(pool, OPEN, name=store.BreakerName(NAME, "umbrella"))
    snapshot = await store.load_snapshot(pool, NOW)
    deferring = await pool.fetch("SELECT tenant, until FROM tenant_breaker_deferrals ORDER BY 1")

    assert [each.state for each in snapshot.breakers] == [CLOSED]
    assert {each.tenant: (each.state, each.forced) for each in snapshot.tenant_breakers} == {
        "acme": (OPEN, None),
        "umbrella": (CLOSED, OPEN),
    }
    assert [tuple(row) for row in deferring] == [("acme", None), ("umbrella", None)]
    assert await deferrals(pool) == []


@pytest.mark.requirement("P5")
async def test_forced_state_of_a_tenant_expires_with_its_tenant(pool: asyncpg.Pool) -> None:
    name = store.BreakerName(NAME, "acme")
    await force(pool, OPEN, LONG_AGO, NOW - timedelta(seconds=1), name=name)

    (row,) = await store.expire_forced(pool)
    await store.delete_forgotten(pool)

    assert store.name_of(row) == name
    assert [each.forced for each in (await store.load_snapshot(pool, NOW)).tenant_breakers] == [
        None
    ]


@pytest.mark.requirement("P5")
async def test_breakers_of_one_tenant_leave_the_others_in_the_snapshot_and_have_a_bound(
    pool: asyncpg.Pool,
) -> None:
    await pool.execute(
        "INSERT INTO tenant_breakers (tenant, downstream, state, since) "
        "SELECT 'acme', 'task:' || n, 'open', $1 FROM generate_series(1, $2) n",
        NOW + timedelta(hours=1),
        store.MAX_TENANT_BREAKERS + 10,
    )
    await store.record_state(pool, reported(OPEN).model_copy(update={"tenant": "umbrella"}))
    snapshot = await store.load_snapshot(pool, NOW)
    await store.delete_surplus(pool)

    counts = await pool.fetch("SELECT tenant, count(*) FROM tenant_breakers GROUP BY 1 ORDER BY 1")
    assert "umbrella" in {each.tenant for each in snapshot.tenant_breakers}
    assert [tuple(row) for row in counts] == [
        ("acme", store.MAX_TENANT_BREAKERS),
        ("umbrella", 1),
    ]
