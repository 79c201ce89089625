"""Rows for queries, in the form in which the ticker and executors write them."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.ids import RunKey, schedule_id

_SCHEDULE = """
INSERT INTO schedules (id, tenant, key, name, owner, class, priority, pool, tags, metadata,
    version, created_at, updated_at)
VALUES ($1, $2, $3, $6, $7, 'normal', 5, 'default', $4, '{}', 1, $5, $5)
"""
_VERSION = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, run_spec, fingerprint, accepted_at, effective_at)
VALUES ($1, 1, $2, '{}', '', $3, $3)
"""
_STATE = """
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_until,
    dispatched, open_runs, skipped_times)
VALUES ($1, 1, $2, $3, $4, $6, 0, $5, $7)
"""
_STATE_COLUMNS = """
UPDATE schedule_state SET executions = $2, failures = $3, last_run = $4, pending_version = $5,
    pending_at = $6
WHERE schedule_id = $1
"""
_NEXT_VERSION = """
INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint,
    accepted_at, effective_at, status, actor)
VALUES ($1, $2, $3, '{}', '', $4, $5, $6, $7)
"""
_RANGE = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
    reason, due_at, finished_at, range_until, range_count)
VALUES ($1, $2, $3, 1, 1, 'default', 'normal', 5, 'skipped', $5, $1, $4, $4, 7)
"""
_RUN = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
    due_at, attempt, started_at, reason, finished_at)
VALUES ($1, $2, $3, 1, 1, 'default', 'normal', 5, $4, $1, $5, $6, $7, $8)
"""
_ATTEMPT = """
INSERT INTO attempts (scheduled_for, schedule_id, replay_number, number, lease_holder, started_at,
    finished_at, outcome, error_code, http_status, duration_ms)
VALUES ($1, $2, 0, $3, 'executor-1', $4, $4, 'failed', 'http_503', 503, 12.5)
"""


async def insert_schedule(
    database: asyncpg.Connection,
    tenant: str,
    key: str,
    *,
    created_at: datetime,
    state: str = "active",
    name: str = "Daily sales",
    owner: str = "team-sales",
    tags: list[str] | None = None,
    next_at: datetime | None = None,
    open_runs: list[datetime] | None = None,
    definition: dict[str, Any] | None = None,
    planned_until: datetime | None = None,
    skipped_times: list[datetime] | None = None,
) -> UUID:
    id_ = schedule_id(tenant, key)
    definition = definition or {"key": key, "when": {"every": "1h"}}
    await database.execute(_SCHEDULE, id_, tenant, key, tags or [], created_at, name, owner)
    await database.execute(_VERSION, id_, orjson.dumps(definition).decode(), created_at)
    await database.execute(
        _STATE,
        id_,
        state,
        next_at,
        created_at,
        open_runs or [],
        planned_until or created_at,
        skipped_times or [],
    )
    return id_


async def set_status_columns(
    database: asyncpg.Connection,
    id_: UUID,
    *,
    executions: int = 0,
    failures: int = 0,
    last_run: datetime | None = None,
    pending_version: int | None = None,
    pending_at: datetime | None = None,
) -> None:
    """Set the columns about the runs that the ticker has counted, and about a pending version."""
    values = (executions, failures, last_run, pending_version, pending_at)
    await database.execute(_STATE_COLUMNS, id_, *values)


async def insert_version(
    database: asyncpg.Connection,
    tenant: str,
    definition: dict[str, Any],
    *,
    number: int,
    accepted_at: datetime,
    effective_at: datetime,
    status: str,
    actor: str,
) -> None:
    id_ = schedule_id(tenant, definition["key"])
    text = orjson.dumps(definition).decode()
    await database.execute(
        _NEXT_VERSION, id_, number, text, accepted_at, effective_at, status, actor
    )


async def insert_range(
    database: asyncpg.Connection,
    tenant: str,
    key: str,
    *,
    first: datetime,
    last: datetime,
    reason: str,
) -> None:
    """Insert the row of a range of skipped times."""
    await database.execute(_RANGE, first, schedule_id(tenant, key), tenant, last, reason)


async def insert_run(
    database: asyncpg.Connection,
    tenant: str,
    key: str,
    scheduled_for: datetime,
    *,
    state: str = "succeeded",
    attempt: int = 1,
    late: timedelta | None = None,
    reason: str | None = None,
    finished_at: datetime | None = None,
) -> RunKey:
    run = RunKey(scheduled_for, schedule_id(tenant, key))
    started_at = None if late is None else scheduled_for + late
    values = (state, attempt, started_at, reason, finished_at)
    await database.execute(_RUN, scheduled_for, run.schedule_id, tenant, *values)
    return run


async def insert_attempt(
    database: asyncpg.Connection, run: RunKey, number: int, started_at: datetime
) -> None:
    await database.execute(_ATTEMPT, run.scheduled_for, run.schedule_id, number, started_at)
