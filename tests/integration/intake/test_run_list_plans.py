"""Plans of the list of runs with 100,000 runs in 29 days: it follows the index by time."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import ClauseElement

from harebell.contract.queries import RunList
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RETENTION
from harebell.intake.queries.store import IntakeStore
from harebell.intake.queries.views import Row
from harebell.storage.engine import compile_statement, open_pool

pytestmark = pytest.mark.postgres

SCHEDULES = 1_000  # ten for each owner and for each tag, and one for each name
RUNS = 100_000
PAGE = 50  # rows
PERIOD = timedelta(days=29)
MAX_BLOCKS_OF_A_ROW = 20  # its index entry, its row, its schedule and its first attempt
NOW = datetime.now(UTC)
FILTERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "owner": {"owner": "owner-7"},
    "tag": {"tag": "tag-7"},
    "name": {"name": "name-7"},
    "unknown owner": {"owner": "nobody"},
    "state": {"state": "dead"},
}

_SCHEDULES = """
INSERT INTO schedules (id, tenant, key, name, owner, class, priority, pool, tags, metadata,
    version, created_at, updated_at)
SELECT lpad(to_hex(k), 32, '0')::uuid, 'acme', 'key-' || k, 'name-' || k, 'owner-' || k % 100,
    'normal', 5, 'default', ARRAY['tag-' || k % 100], '{}', 1, now(), now()
FROM generate_series(1, $1) AS k
"""
_RUNS = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
    outcome, due_at, finished_at, attempt)
SELECT $3::timestamptz - $4::interval * k / $2, lpad(to_hex(k % $1 + 1), 32, '0')::uuid, 'acme', 1,
    1, 'default', 'normal', 5, 'succeeded', 'succeeded', now(), now(), 1
FROM generate_series(1, $2) AS k
"""


@pytest.fixture(params=[False, True], ids=["never analyzed", "analyzed"])
async def pool(database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool of the database with the runs."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(_SCHEDULES, SCHEDULES)
    await connection.execute(_RUNS, SCHEDULES, RUNS, NOW, PERIOD)
    if request.param:
        await connection.execute("ANALYZE")
    await connection.close()
    async with open_pool(database_url, name="test", hot=False) as opened:
        yield opened


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


class ExplainedStore(IntakeStore):
    """The statements of intake with their plans instead of their rows."""

    plan: dict[str, Any]

    async def read(self, statement: ClauseElement, *settings: str) -> list[Row]:
        """Keep the executed plan of the statement."""
        sql, parameters = compile_statement(statement)
        async with self.connect(*settings) as connection:
            explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
            self.plan = json.loads(await connection.fetchval(explained, *parameters))[0]["Plan"]
        return []


async def plan_of(pool: asyncpg.Pool, **fields: Any) -> dict[str, Any]:
    """Return the executed plan of a list without `since`, as intake sends the statement."""
    store, query = ExplainedStore(pool), RunList(limit=PAGE, until=NOW, **fields)
    await store.list_runs("acme", query, since=NOW - RETENTION, id_=None)
    return store.plan


def blocks(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.requirement("S32")
async def test_list_follows_the_index_and_a_late_page_costs_as_much_as_the_first(
    pool: asyncpg.Pool,
) -> None:
    plans = {name: await plan_of(pool, **fields) for name, fields in FILTERS.items()}
    cursor = PageCursor(NOW - PERIOD / 2, UUID(int=7))
    late = await plan_of(pool, after=str(cursor))
    assert await pool.fetchval("SHOW enable_sort") == "on"  # the settings end with the list

    kinds = {name: {each["Node Type"] for each in walk(plan)} for name, plan in plans.items()}
    assert {name for name, found in kinds.items() if found & {"Sort", "Hash Join"}} == set()
    bound = PAGE * MAX_BLOCKS_OF_A_ROW
    assert (plans["nothing"]["Actual Rows"], late["Actual Rows"]) == (PAGE + 1, PAGE + 1)
    assert (blocks(plans["nothing"]) < bound, blocks(late) < bound) == (True, True)
