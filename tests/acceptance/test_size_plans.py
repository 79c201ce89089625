"""Plans at a million schedules: frequent statements, lists and the purpose of each index."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from sqlalchemy import ClauseElement
from sqlalchemy.dialects import postgresql
from tests.acceptance.plans import STATEMENTS, Explainer, Statement
from tests.acceptance.schedule_load import MANY, TENANT, ScheduleLoad

from harebell.contract.queries import RunList, ScheduleList
from harebell.contract.types import EARLIEST
from harebell.domain.run_states import RunState, ScheduleState
from harebell.intake.queries.store import IntakeStore, schedules_of_page
from harebell.intake.queries.views import Row
from harebell.storage.engine import open_pool
from harebell.ticker.next_times import NEXT_TIME
from harebell.ticker.store import schedules, versions

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

log = logging.getLogger(__name__)

BACKLOG = 50_000  # schedules that were due in the last hour
RUNS = 200_000  # of the last day; one of a thousand is open
BATCH = 1_000  # schedules in a pass
MAX_BLOCKS = 10  # for each schedule
VERSIONS = 10_000  # of one schedule
MIN_FACTOR = 2.0  # between the costs without and with an index
NOW = datetime.now(UTC)
TABLES = {"schedules", "schedule_versions", "schedule_state"}

_SET_BACK = """
UPDATE schedule_state SET next_at = now() - make_interval(secs => 3600 * random())
WHERE schedule_id IN (SELECT schedule_id FROM schedule_state WHERE next_at IS NOT NULL LIMIT $1)
"""
_RUNS = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  outcome, due_at, finished_at)
SELECT at, s.id, s.tenant, 1, 1, 'default', 'normal', 5,
       CASE WHEN is_open THEN 'staged' ELSE 'succeeded' END,
       CASE WHEN NOT is_open THEN 'succeeded' END, at, CASE WHEN NOT is_open THEN at END
FROM (SELECT id, tenant, k, now() - make_interval(secs => k * 0.4) AS at, k % 1000 = 0 AS is_open
      FROM (SELECT id, tenant, row_number() OVER () AS k FROM schedules LIMIT $1) AS numbered) AS s
"""
# A user who changes a schedule often leaves many versions that are no longer pending.
_VERSIONS = """
INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint,
                               accepted_at, effective_at, status)
SELECT $1, number, '{}', '{}', '', now(), now(), 'active' FROM generate_series(2, $2) AS number
"""
_DUE = """
EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT schedule_id FROM schedule_state
WHERE next_at > '-infinity' AND next_at <= now()
ORDER BY next_at LIMIT 1000 FOR UPDATE SKIP LOCKED
"""
_TAGGED = "SELECT id FROM schedules WHERE $1 = ANY(tags)"  # without an index
# The ticker's connection of this test does not permit these joins, and that of intake does.
COLD_PLANS = (
    "SELECT set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)"
)
_ANALYZE = "ANALYZE schedules, schedule_versions, schedule_state, runs"
_INDEXES = """
SELECT indexname, tablename FROM pg_indexes
WHERE tablename IN ('schedules', 'schedule_versions', 'schedule_state', 'runs')
"""


@asynccontextmanager
async def connected(schedule_load: ScheduleLoad) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection like the ticker's, with a backlog of an hour and the runs of a day.

    A rollback at the end undoes every change.
    """
    async with (
        open_pool(schedule_load.stack.database_url, name="test") as pool,
        pool.acquire(timeout=60) as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SET LOCAL statement_timeout = 0")
        try:
            await connection.execute(_SET_BACK, BACKLOG, timeout=120)
            await connection.execute(_RUNS, RUNS, timeout=120)
            await connection.execute(_VERSIONS, SCHEDULE_ID, VERSIONS, timeout=120)
            yield connection
        finally:
            await transaction.rollback()


class ExplainedStore(IntakeStore):
    """The statements of intake, explained instead of executed."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer

    async def read(self, statement: ClauseElement, *settings: str) -> list[Row]:
        """Explain a statement with the settings of intake, which plans for its parameters."""
        connection = self._explainer.connection
        savepoint = connection.transaction()
        await savepoint.start()
        for setting in ("SET LOCAL plan_cache_mode = auto", COLD_PLANS, *settings):
            await connection.execute(setting)
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy has no type
        text = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        rows = await self._explainer.fetch(str(text))
        await savepoint.rollback()
        return rows


def schedule_lists(**filters: Any) -> Statement:
    query = ScheduleList(**filters, limit=100)
    return lambda connection: ExplainedStore(connection).list_schedules(TENANT, query)


def schedule_page(**filters: Any) -> Statement:
    """Return the part of a list that finds the schedules, without the part about their runs."""
    query = ScheduleList(**filters, limit=100)
    return lambda explainer: ExplainedStore(explainer).read(schedules_of_page(TENANT, query))


def runs(id_: UUID | None = None, **filters: Any) -> Statement:
    query, since = RunList(**filters, limit=100), NOW - timedelta(hours=24)
    return lambda connection: ExplainedStore(connection).list_runs(
        TENANT, query, since=since, id_=id_
    )


SCHEDULE_ID = UUID(int=7)
FREQUENT: dict[str, Statement] = STATEMENTS | {
    "next time": lambda connection: connection.fetchval(NEXT_TIME, EARLIEST),
    "find awaiting schedules": lambda connection: schedules.find_awaiting(connection, 500),
}
LISTS: dict[str, Statement] = {
    "schedules": schedule_lists(),
    "schedules by tag": schedule_lists(tag="box-7"),
    "schedules by owner": schedule_lists(owner="owner-7"),
    "schedules by name": schedule_lists(name="name-7"),
    "schedules by state": schedule_lists(state=ScheduleState.ERRORED),
    "runs": runs(),
    "runs of a schedule": runs(SCHEDULE_ID),
    "runs by state": runs(state=RunState.DEAD),
    "runs by outcome": runs(outcome="dead"),
    "runs by reason": runs(reason="missed"),
    "runs by tag": runs(tag="team-7"),
    "runs by owner": runs(owner="owner-7"),
    "runs by name": runs(name="name-7"),
    "runs before a time": runs(until=NOW),
}
# Each index of these tables and a statement that uses the index.
BY_INDEX: dict[str, Statement] = {
    "schedules_pkey": lambda connection: ExplainedStore(connection).get_schedule(
        TENANT, SCHEDULE_ID
    ),
    "schedules_page": schedule_page(),
    "schedules_tags": schedule_page(tag="box-7"),
    "schedules_owner": schedule_page(owner="owner-7"),
    "schedules_name": schedule_page(name="name-7"),
    "schedule_versions_pkey": lambda connection: versions.VersionCache().load(
        connection, [(SCHEDULE_ID, 1)]
    ),
    "schedule_versions_pending": lambda connection: ExplainedStore(connection).list_pending(
        SCHEDULE_ID
    ),
    "schedule_state_pkey": lambda connection: schedules.load_unit_of_work(
        connection, versions.VersionCache(), [SCHEDULE_ID]
    ),
    "schedule_state_next": FREQUENT["load due schedules"],
    "schedule_state_awaited_run": FREQUENT["find awaiting schedules"],
    "schedule_state_halted": schedule_page(state=ScheduleState.ERRORED),
    # The claim of these keys reads only the partition of their day, which is empty here.
    "runs_pkey": FREQUENT["explain a rejected claim"],
    "runs_open": FREQUENT["find lost tickets"],
    "runs_ranges": lambda connection: ExplainedStore(connection).find_run(TENANT, SCHEDULE_ID, NOW),
}
UNIQUE_INDEXES = {"schedules_key"}  # prevents two schedules with one key


@pytest.mark.requirement("S17", "S41")
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
async def test_frequent_statements_and_lists_do_not_scan_the_schedules(
    schedule_load: ScheduleLoad, *, analyzed: bool
) -> None:
    scanned = {}
    async with connected(schedule_load) as connection:
        if analyzed:
            await connection.execute(_ANALYZE, timeout=120)
        for name, statement in (FREQUENT | LISTS).items():
            explainer = Explainer(connection)
            await statement(explainer)
            assert explainer.nodes, name
            scanned[name] = explainer.scanned & TABLES

    assert {name: tables for name, tables in scanned.items() if tables} == {}


@pytest.mark.requirement("S41")
async def test_batch_of_due_schedules_reads_few_blocks_with_a_backlog_of_an_hour(
    schedule_load: ScheduleLoad,
) -> None:
    """Count blocks, because the time depends on the load of the machine.

    `make bench ONLY=stored` measures the time.
    """
    async with connected(schedule_load) as connection:
        plan = orjson.loads(await connection.fetchval(_DUE))[0]

    blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    log.info("a batch of due schedules: %d blocks, %.1f ms", blocks, plan["Execution Time"])
    assert plan["Plan"]["Actual Rows"] == BATCH
    assert blocks < BATCH * MAX_BLOCKS


@pytest.mark.requirement("S17")
async def test_list_finds_a_tag_by_its_index_and_has_pages(
    schedule_load: ScheduleLoad,
) -> None:
    async with connected(schedule_load) as connection:
        await connection.execute(_ANALYZE, timeout=120)
        explainer = Explainer(connection)
        await LISTS["schedules by tag"](explainer)
        used = {node.get("Index Name") for node in explainer.nodes}
    async with schedule_load.tenant() as tenant:
        tagged = await tenant.ledger.fetch(_TAGGED, "team-7")
        listed = [row async for row in tenant.harebell.schedules(tag="team-7")]

    assert "schedules_tags" in used
    assert {str(row.id) for row in listed} == {str(row["id"]) for row in tagged}
    assert len(listed) == len(tagged) >= MANY // 1_000
    created = [row.created_at for row in listed]
    assert created == sorted(created, reverse=True)


@pytest.mark.requirement("S42")
async def test_each_index_has_a_query_that_is_slower_without_it(
    schedule_load: ScheduleLoad,
) -> None:
    useless = {}
    async with connected(schedule_load) as connection:
        await connection.execute(_ANALYZE, timeout=120)
        tables = {row["indexname"]: row["tablename"] for row in await connection.fetch(_INDEXES)}
        for name, statement in BY_INDEX.items():
            with_index = await cost(connection, statement)
            await connection.execute("SAVEPOINT whole")
            await drop(connection, tables[name], name)
            without_index = await cost(connection, statement)
            await connection.execute("ROLLBACK TO SAVEPOINT whole")
            log.info(
                "cost of %s: %.0f with the index, %.0f without", name, with_index, without_index
            )
            if without_index < with_index * MIN_FACTOR:
                useless[name] = (with_index, without_index)

    assert set(tables) == set(BY_INDEX) | UNIQUE_INDEXES
    assert useless == {}


async def cost(connection: asyncpg.Connection, statement: Statement) -> float:
    explainer = Explainer(connection)
    await statement(explainer)
    return explainer.cost


async def drop(connection: asyncpg.Connection, table: str, index: str) -> None:
    if index.endswith("_pkey"):
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {index} CASCADE")
    else:
        await connection.execute(f"DROP INDEX {index}")
