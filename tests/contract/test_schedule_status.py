"""The SQL of the status of schedules agrees with `domain/run_states.py` for every run."""

import re
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg
import orjson
import pytest
from tests.acceptance.plans import walk
from tests.contract.ledger_rows import NOW, ROWS, Row, insert_rows

from harebell.contract.commands import ScheduleFilter
from harebell.contract.queries import ScheduleList
from harebell.domain.run_states import (
    OPEN,
    RESTAGEABLE,
    Reason,
    RunResult,
    RunState,
    ScheduleState,
    visible_state,
)
from harebell.intake.queries.store import PREFER_INDEXES, IntakeStore, schedule_page
from harebell.storage.engine import compile_statement
from harebell.ticker.store import schedules

pytestmark = pytest.mark.postgres

UNSTAGED: Final = RESTAGEABLE - {Reason.CANCELLED}
_SCHEDULE = """
INSERT INTO schedules (id, tenant, class, priority, pool, tags, metadata, version, created_at,
                       updated_at)
VALUES ($1, 'acme', 'normal', 5, 'default', '{}', '{}', 1, $2, $2)
"""
_STATE = """
INSERT INTO schedule_state (schedule_id, version, state, changed_at, planned_until, dispatched,
                            open_runs, executions, failures)
VALUES ($1, 1, $2, $3, $3, 0, $4, 7, 3)
"""


def result_of_row(row: Row) -> RunResult:
    is_unstaged = row.state is RunState.CANCELLED and not row.attempt and row.reason in UNSTAGED
    return RunResult(row.state, row.attempt, is_unstaged)


async def insert_schedules(database: asyncpg.Connection, state: ScheduleState) -> None:
    """Insert one schedule for each row, with this stored state and the row as its open run."""
    for number, row in enumerate(ROWS):
        await database.execute(_SCHEDULE, row.key.schedule_id, NOW + timedelta(seconds=number))
        await database.execute(_STATE, row.key.schedule_id, state, NOW, [row.key.scheduled_for])


async def test_find_ended_returns_the_results_of_the_runs_that_have_ended(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, ROWS)
    missing = ROWS[0].key._replace(schedule_id=UUID(int=1))

    async with ledger.acquire() as connection:
        ended = await schedules.find_ended(connection, [*(row.key for row in ROWS), missing])

    results = {row.key: result_of_row(row) for row in ROWS}
    expected = {key: result for key, result in results.items() if result.has_ended}
    assert ended == {**expected, missing: None}
    assert {row.state for row in ROWS if row.key not in ended} == {*OPEN, RunState.UNRESOLVED}


@pytest.mark.requirement("S40")
@pytest.mark.parametrize("stored", [ScheduleState.ACTIVE, ScheduleState.COMPLETED])
async def test_queries_and_filters_agree_with_the_rule_of_the_visible_state(
    database_url: str, stored: ScheduleState
) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=2) as pool:
        store = IntakeStore(pool)
        await insert_rows(pool, ROWS)
        await insert_schedules(pool, stored)

        listed, _ = await store.list_schedules("acme", ScheduleList(limit=500))
        by_state = {
            state: await store.list_schedules("acme", ScheduleList(state=state, limit=500))
            for state in ScheduleState
        }
        async with pool.acquire() as connection, connection.transaction():
            selected = {
                state: await schedules.find_schedules(
                    connection, "acme", ScheduleFilter(state=state), limit=500
                )
                for state in ScheduleState
            }

    expected = {
        row.key.schedule_id: visible_state(stored, has_open_run=row.state in OPEN) for row in ROWS
    }
    results = {row.key.schedule_id: result_of_row(row) for row in ROWS}
    assert {row["id"]: row["state"] for row in listed} == expected
    for state, (rows, _) in by_state.items():
        assert {row["id"] for row in rows} == {
            id_ for id_, each in expected.items() if each == state
        }
        assert set(selected[state]) == {row["id"] for row in rows}
    for row in listed:
        result = results[row["id"]]
        assert (row["ended_executions"], row["ended_failures"]) == (
            result.is_execution,
            result.is_failure,
        )
        has_last_run = row["latest_state"] is not None
        is_open = result.state in OPEN
        assert has_last_run is (result.attempt > 0 if is_open else not result.is_unstaged)


@pytest.mark.requirement("S17", "S40")
@pytest.mark.parametrize("state", [None, ScheduleState.ACTIVE, ScheduleState.COMPLETED])
async def test_page_of_schedules_reads_each_run_by_its_key_in_its_partition(
    database_url: str, state: ScheduleState | None
) -> None:
    statement = schedule_page("acme", ScheduleList(state=state, limit=5))
    sql, parameters = compile_statement(statement)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        await insert_rows(pool, ROWS)
        await insert_schedules(pool, ScheduleState.COMPLETED)
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(PREFER_INDEXES)
            plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *parameters)

    nodes = list(walk(orjson.loads(plan)[0]["Plan"]))
    of_runs = [node for node in nodes if node.get("Relation Name", "").startswith("runs_")]
    executed = [node for node in of_runs if node["Actual Loops"] > 0]
    assert {node["Relation Name"] for node in executed} == {f"runs_{NOW:%Y%m%d}"}
    for node in executed:
        assert "Index" in node["Node Type"]
        assert {"scheduled_for", "schedule_id"} <= set(re.findall(r"\w+", node["Index Cond"]))
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan"]
