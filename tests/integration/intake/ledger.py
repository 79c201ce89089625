"""Rows as the ticker and executors leave them, for queries to find."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.identity import RunKey, schedule_id

_SCHEDULE = """
INSERT INTO schedules (id, tenant, key, name, owner, class, priority, pool, tags, metadata,
    version, created_at, updated_at)
VALUES ($1, $2, $3, 'Daily sales', 'team-sales', 'normal', 5, 'default', $4, '{}', 1, $5, $5)
"""
_VERSION = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, work, fingerprint, accepted_at, effective_at)
VALUES ($1, 1, $2, '{}', '', $3, $3)
"""
_STATE = """
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_to,
    dispatched, open_runs)
VALUES ($1, 1, $2, $3, $4, $4, 0, $5)
"""
_RUN = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
    due_at, attempt, started_at)
VALUES ($1, $2, $3, 1, 1, 'default', 'normal', 5, $4, $1, $5, $6)
"""
_ATTEMPT = """
INSERT INTO attempts (scheduled_for, schedule_id, series, number, worker, started_at, finished_at,
    outcome, error_code, http_status, duration_ms)
VALUES ($1, $2, 1, $3, 'executor-1', $4, $4, 'failed', 'http_503', 503, 12.5)
"""


async def keep_schedule(
    database: asyncpg.Connection,
    tenant: str,
    key: str,
    *,
    created_at: datetime,
    state: str = "active",
    tags: list[str] | None = None,
    next_at: datetime | None = None,
    open_runs: list[datetime] | None = None,
) -> UUID:
    id_ = schedule_id(tenant, key)
    definition: dict[str, Any] = {"key": key, "when": {"every": "1h"}}
    await database.execute(_SCHEDULE, id_, tenant, key, tags or [], created_at)
    await database.execute(_VERSION, id_, orjson.dumps(definition).decode(), created_at)
    await database.execute(_STATE, id_, state, next_at, created_at, open_runs or [])
    return id_


async def keep_run(
    database: asyncpg.Connection,
    tenant: str,
    key: str,
    scheduled_for: datetime,
    *,
    state: str = "succeeded",
    attempt: int = 1,
    late: timedelta | None = None,
) -> RunKey:
    run = RunKey(scheduled_for, schedule_id(tenant, key))
    started_at = None if late is None else scheduled_for + late
    values = (scheduled_for, run.schedule_id, tenant, state, attempt, started_at)
    await database.execute(_RUN, *values)
    return run


async def keep_attempt(
    database: asyncpg.Connection, run: RunKey, number: int, started_at: datetime
) -> None:
    await database.execute(_ATTEMPT, run.scheduled_for, run.schedule_id, number, started_at)
