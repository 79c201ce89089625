"""The retention of schedules on PostgreSQL: versions, ended schedules, stored responses, counts."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest
from tests.fakes.history import History, insert_dead_letter, insert_history, runs_by_day
from tests.fakes.stored_schedules import TENANT, schedule_ids, store_schedules
from tests.rig.servers import as_role

from harebell.domain.run_states import RunResult, RunState
from harebell.domain.tenant_policy import TenantPolicies
from harebell.intake.queries.store import IntakeStore
from harebell.intake.queries.views import schedule_detail
from harebell.runtime.settings import PoolBounds, TickerSettings
from harebell.storage.engine import open_pool
from harebell.ticker.model.retention import Ages
from harebell.ticker.retention import Retention
from harebell.ticker.store.expired_rows import (
    Cutoff,
    Slice,
    delete_ended_schedules,
    delete_versions,
)
from harebell.ticker.store.retention import FIRST_ID, slice_transaction
from harebell.ticker.store.schedules import load_unit_of_work
from harebell.ticker.store.versions import VersionCache

NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)
IDS: Final = schedule_ids(5)
MIDNIGHT: Final = datetime.combine((NOW - 40 * DAY).date(), datetime.min.time(), UTC)


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url, server_settings={"timezone": "UTC"})
    yield connection
    await connection.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool with the rights of a ticker."""
    url = as_role(database_url, "ticker")
    async with open_pool(url, name="test", bounds=PoolBounds(max_size=4)) as opened:
        yield opened


async def run_pass(pool: asyncpg.Pool, policies: Any = None, **settings: Any) -> None:
    urls = {"amqp_url": "amqp://127.0.0.1", "database_url": "postgresql://127.0.0.1/x"}
    retention = Retention(
        pool=pool,
        settings=TickerSettings.model_validate(urls | settings),
        policies=TenantPolicies.parse(policies),
        batch=2,
    )
    assert await retention.run_pass()


async def ages(owner: asyncpg.Connection, table: str, column: str) -> list[int]:
    """Return the ages of the rows in hours, the youngest first."""
    rows = await owner.fetch(
        f"SELECT round(extract(epoch FROM now() - {column}) / 3600)::int "  # noqa: S608  # constants
        f"FROM {table} ORDER BY 1"
    )
    return [row[0] for row in rows]


@pytest.mark.requirement("S119")
async def test_command_results_and_bulk_operations_are_removed_by_their_age(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    for tenant in ("default", "brief"):
        await owner.execute(
            "INSERT INTO command_results (tenant, request_id, item_index, response, created_at) "
            "SELECT $1, h::text, 0, '{}', now() - make_interval(hours => h) "
            "FROM unnest($2::int[]) AS h",
            tenant,
            [0, 3, 23, 25, 48, 60],
        )
    await owner.execute(
        "INSERT INTO bulk_operations (tenant, id, schedule_ids, verb, created_at) "
        "SELECT 'default', h::text, '{}', 'pause', now() - make_interval(hours => h) "
        "FROM unnest($1::int[]) AS h",
        [1, 29 * 24, 31 * 24],
    )

    policies = {"tenants": {"brief": {"retention": {"command_results": "2h"}}}}
    await run_pass(pool, policies)

    assert await ages(owner, "command_results", "created_at") == [0, 0, 3, 23]
    assert await ages(owner, "bulk_operations", "created_at") == [1, 29 * 24]


async def store_versions(owner: asyncpg.Connection, id_: UUID, ages_in_days: list[int]) -> None:
    """Add later versions to a schedule. The last one is in force, and a failed one follows it."""
    numbers = range(2, len(ages_in_days) + 2)
    statement = """
        INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint,
            accepted_at, effective_at, status)
        SELECT schedule_id, $2, definition, run_spec, fingerprint, now() - $3::interval,
               now() - $3::interval, $4
        FROM schedule_versions WHERE schedule_id = $1 AND version = 1
    """
    for number, age in zip(numbers, ages_in_days, strict=True):
        await owner.execute(statement, id_, number, age * DAY, "active")
    await owner.execute(statement, id_, numbers[-1] + 1, 100 * DAY, "failed")
    await owner.execute(
        "UPDATE schedule_state SET version = $2 WHERE schedule_id = $1", id_, numbers[-1]
    )


async def versions_of(owner: asyncpg.Connection, id_: UUID) -> list[int]:
    rows = await owner.fetch(
        "SELECT version FROM schedule_versions WHERE schedule_id = $1 ORDER BY version", id_
    )
    return [row[0] for row in rows]


@pytest.mark.requirement("S119")
async def test_replaced_versions_are_removed_if_no_run_needs_them(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    await store_schedules(pool, IDS, {"cron": "0 9 * * *"}, NOW - 300 * DAY)
    for id_ in IDS:
        await store_versions(owner, id_, [200, 120, 10])
    await insert_history(
        owner, History(day=MIDNIGHT.date(), ids=(IDS[1],), count=1, state="unresolved")
    )
    await insert_history(owner, History(day=MIDNIGHT.date(), ids=(IDS[2],), count=1, state="dead"))
    await insert_dead_letter(owner, MIDNIGHT, IDS[2])
    await owner.execute(
        "UPDATE schedule_state SET open_runs = $1 WHERE schedule_id = $2", [MIDNIGHT], IDS[1]
    )
    await insert_history(
        owner, History(day=MIDNIGHT.date(), ids=(IDS[3],), count=1, state="skipped")
    )
    await owner.execute("UPDATE runs SET range_until = now() WHERE schedule_id = $1", IDS[3])
    await insert_history(owner, History(day=MIDNIGHT.date(), ids=(IDS[4],), count=1, state="dead"))
    await insert_dead_letter(owner, MIDNIGHT, IDS[4], state="replayed")
    await owner.execute(
        "INSERT INTO replay_items (job_id, position, dead_letter_id, status) "
        "SELECT id, 1, id, 'replayed' FROM dead_letters WHERE schedule_id = $1",
        IDS[4],
    )

    await run_pass(pool)

    assert await versions_of(owner, IDS[0]) == [3, 4, 5]
    assert await versions_of(owner, IDS[1]) == [1, 3, 4, 5]
    assert await versions_of(owner, IDS[2]) == [1, 2, 3, 4, 5]
    assert await versions_of(owner, IDS[3]) == [1, 3, 4, 5]
    assert await versions_of(owner, IDS[4]) == [1, 3, 4, 5]


class RolledBackError(Exception):
    """The end of a transaction that must change nothing."""


class Explainer:
    """A connection that executes a statement and counts the blocks that it reads."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.blocks = 0

    async def execute(self, statement: str, *arguments: object) -> str:
        statement = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        (found,) = json.loads(await self._connection.fetchval(statement, *arguments))
        self.blocks += found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
        return "DELETE 0"

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        await self.execute(statement, *arguments)
        return []


async def test_removal_does_not_read_the_runs_of_a_tenant_with_a_longer_retention(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    await store_schedules(pool, IDS, {"cron": "0 9 * * *"}, NOW - 300 * DAY)
    for id_ in IDS:
        await store_versions(owner, id_, [200, 120, 10])
    change = "UPDATE schedule_state SET state = 'deleted', changed_at = now() - interval '60 days'"
    await owner.execute(change)
    ages = Ages(default=2 * DAY, tenants={"long": 400 * DAY})

    async def blocks() -> int:
        await owner.execute("VACUUM ANALYZE")
        cutoff = Cutoff(runs=ages, runs_before=ages.cutoffs(NOW).last)
        every, read = Slice(FIRST_ID, UUID(int=2**128 - 1)), 0
        with suppress(RolledBackError):
            async with slice_transaction(pool) as connection:
                explainer = Explainer(connection)
                await delete_versions(explainer, every, ages, cutoff=cutoff, limit=100)
                await delete_ended_schedules(explainer, every, ages, cutoff=cutoff)
                read = explainer.blocks
                raise RolledBackError
        return read

    before = await blocks()
    day = (NOW - 10 * DAY).date()
    await insert_history(owner, History(day=day, ids=tuple(IDS), count=20_000, tenant="long"))

    assert await blocks() < before + 200


@pytest.mark.requirement("S119")
async def test_ended_schedules_are_removed_with_their_rows(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    await store_schedules(pool, IDS, {"cron": "0 9 * * *"}, NOW - 300 * DAY)
    change = (
        "UPDATE schedule_state SET state = $2, changed_at = $3, planned_until = $3, next_at = NULL "
        "WHERE schedule_id = $1"
    )
    await owner.execute(change, IDS[0], "completed", NOW - 50 * DAY)
    await owner.execute(change, IDS[1], "cancelled", NOW - 20 * DAY)
    await owner.execute(change, IDS[2], "deleted", NOW - 50 * DAY)
    await insert_history(owner, History(day=MIDNIGHT.date(), ids=(IDS[2],), count=1, state="dead"))
    await insert_dead_letter(owner, MIDNIGHT, IDS[2])
    await owner.execute(change, IDS[3], "cancelled", NOW - 50 * DAY)
    await insert_history(
        owner, History(day=MIDNIGHT.date(), ids=(IDS[3],), count=1, state="skipped")
    )
    await owner.execute("UPDATE runs SET range_until = now() WHERE schedule_id = $1", IDS[3])

    await run_pass(pool)

    for table, column in (
        ("schedules", "id"),
        ("schedule_state", "schedule_id"),
        ("schedule_versions", "schedule_id"),
    ):
        rows = await owner.fetch(f"SELECT {column} FROM {table}")  # noqa: S608  # constants
        assert {row[0] for row in rows} == set(IDS[1:])


@pytest.mark.requirement("S118")
async def test_schedule_keeps_its_counts_and_its_last_run_after_the_removal(
    owner: asyncpg.Connection, pool: asyncpg.Pool, database_url: str
) -> None:
    """The counts of the open runs follow the rule of the ticker."""
    await store_schedules(pool, IDS[:1], {"cron": "0 * * * *"}, NOW - 300 * DAY)
    await insert_history(owner, History(day=MIDNIGHT.date(), ids=(IDS[0],), count=24))
    times = [MIDNIGHT + timedelta(hours=hour) for hour in range(24)]
    change = "UPDATE runs SET state = $2, attempt = $3, reason = $4 WHERE scheduled_for = $1"
    await owner.execute(change, times[1], "dead", 3, "attempts_exhausted")
    await owner.execute(change, times[2], "skipped", 0, "overlap")
    await owner.execute(change, times[4], "cancelled", 0, "superseded")
    await owner.execute(
        "UPDATE schedule_state SET open_runs = $1, state = 'completed', next_at = NULL, "
        "last_run = $2 WHERE schedule_id = $3",
        times[:5],
        MIDNIGHT - DAY,
        IDS[0],
    )
    async with pool.acquire() as connection, connection.transaction():
        unit = await load_unit_of_work(connection, VersionCache(), IDS[:1])
        results = {key.scheduled_for: run.result for key, run in unit.ended_runs.items()}
        expected = unit.schedules[IDS[0]].with_results(results)
    assert results[times[1]] == RunResult(RunState.DEAD, 3)
    async with open_pool(as_role(database_url, "intake"), name="test", hot=False) as reading:
        store = IntakeStore(reading)
        before = await store.get_schedule(TENANT, IDS[0])
        await run_pass(pool, ended_schedule_retention="400d")
        after = await store.get_schedule(TENANT, IDS[0])

    state = await owner.fetchrow("SELECT * FROM schedule_state WHERE schedule_id = $1", IDS[0])
    assert state["open_runs"] == []
    assert (state["executions"], state["failures"], state["last_run"]) == (
        expected.executions,
        expected.failures,
        expected.last_run,
    )
    assert await runs_by_day(owner) == {}
    assert before is not None
    assert after is not None
    views = [schedule_detail(row, [], now=NOW) for row in (before, after)]
    assert views[0].last_run == views[1].last_run
    assert views[1].last_run is not None
    assert views[0].executions == views[1].executions == 3
    assert views[0].failures == views[1].failures == 1


async def test_version_of_a_new_schedule_with_the_same_key_replaces_the_cached_one(
    owner: asyncpg.Connection, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retention frees the key of a removed schedule, and its numbers begin again."""
    await store_schedules(pool, IDS[:1], {"cron": "0 9 * * *"}, NOW)
    versions, key = VersionCache(), (IDS[0], 1)
    async with pool.acquire() as connection:
        first = await versions.load(connection, [key])
        await owner.execute("DELETE FROM schedule_versions")
        assert await versions.load(connection, [key]) == first
        monkeypatch.setattr(VersionCache, "MAX_AGE", -1.0)
        assert await versions.load(connection, [key]) == {}
