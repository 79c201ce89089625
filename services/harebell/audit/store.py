"""The statements of the audit, and its read-only connection with a long statement timeout."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Final
from uuid import UUID

import asyncpg

from harebell.audit.model.records import Attempt, Run
from harebell.storage.engine import (
    SESSION_SETTINGS,
    connect,
    refuse_pooler,
    translate_db_errors,
)

APPLICATION_NAME: Final = "harebell-audit"
STATEMENT_TIMEOUT: Final = "60s"  # a slice of runs may not be in the cache of PostgreSQL
COMMAND_TIMEOUT: Final = 65.0  # seconds; above the statement timeout, for a lost connection

# The recovery of lost tickets sets `staged_at` to the same time as `republished_at`.
FIRST_STAGED_AT: Final = (
    "CASE WHEN republished_at = staged_at THEN first_staged_at ELSE staged_at END"
)

_SCHEDULES: Final = """
SELECT s.id, s.tenant, s.key, s.version AS shown_version, t.version, t.state, t.planned_until,
       t.dispatched, t.next_at, t.awaited_run, t.pending_at, t.changed_at, t.executions,
       t.failures, t.last_run
FROM schedules s LEFT JOIN schedule_state t ON t.schedule_id = s.id
WHERE s.id > $1 AND ($2::text IS NULL OR s.tenant = $2)
  AND ($3::text IS NULL OR s.key = $3 OR s.id::text = $3)
ORDER BY s.id LIMIT $4
"""
_VERSIONS: Final = """
SELECT schedule_id, version, definition, effective_at, anchor_at, status, planned_from,
       planned_until
FROM schedule_versions WHERE schedule_id = ANY($1)
ORDER BY schedule_id, version
"""
# A batch is between its first and its last schedule. The condition in CASE is hidden from the
# planner, which would otherwise read the whole slice once for each schedule.
_RUNS: Final = f"""
SELECT scheduled_for, schedule_id, tenant, version, origin, state, reason, outcome, seq,
       replay_number, attempt, due_at, expires_at, next_attempt_at, lease_holder, lease_until,
       staged_at, started_at, finished_at, range_until, range_count, failed_probes,
       override->>'target' AS target, {FIRST_STAGED_AT} AS first_staged_at
FROM runs
WHERE scheduled_for >= $2 AND scheduled_for < $3 AND schedule_id >= $4 AND schedule_id <= $5
  AND CASE WHEN schedule_id = ANY($1) THEN true ELSE false END
ORDER BY schedule_id, scheduled_for
"""  # noqa: S608  # the parts are constants
_RANGES: Final = f"""
SELECT scheduled_for, schedule_id, tenant, version, origin, state, reason, outcome, seq,
       replay_number, attempt, due_at, expires_at, next_attempt_at, lease_holder, lease_until,
       staged_at, started_at, finished_at, range_until, range_count, failed_probes,
       override->>'target' AS target, {FIRST_STAGED_AT} AS first_staged_at
FROM runs
WHERE schedule_id = ANY($1) AND scheduled_for < $2 AND range_until >= $2
ORDER BY schedule_id, scheduled_for
"""  # noqa: S608  # the parts are constants
_MARKS: Final = "SELECT tenant, removed_until FROM history_marks"
_ATTEMPTS: Final = """
SELECT scheduled_for, schedule_id, replay_number, number, outcome, started_at FROM attempts
WHERE scheduled_for >= $2 AND scheduled_for < $3 AND schedule_id >= $4 AND schedule_id <= $5
  AND CASE WHEN schedule_id = ANY($1) THEN true ELSE false END
ORDER BY schedule_id, scheduled_for, replay_number, number
"""
_run_key = itemgetter("schedule_id", "scheduled_for")


@dataclass(slots=True)
class SliceRows:
    """The rows of one schedule in one slice. `orphans` are times with attempts and no run."""

    runs: list[Run] = field(default_factory=list)
    orphans: list[datetime] = field(default_factory=list)


@asynccontextmanager
async def connect_read_only(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a connection that cannot write, without a pooler, because it keeps a cursor.

    Raise `DatabaseUnavailable`, and `InvalidInput` for the URL of a pooler.
    """
    refuse_pooler(url, "The audit")
    settings = SESSION_SETTINGS | {
        "application_name": APPLICATION_NAME,
        "default_transaction_read_only": "on",
        "idle_in_transaction_session_timeout": STATEMENT_TIMEOUT,
        "statement_timeout": STATEMENT_TIMEOUT,
    }
    with translate_db_errors():
        connection = await connect(
            url,
            command_timeout=COMMAND_TIMEOUT,
            server_settings=settings,
        )
    try:
        yield connection
    finally:
        connection.terminate()


async def load_schedules(
    connection: asyncpg.Connection,
    *,
    after: UUID,
    tenant: str | None,
    schedule: str | None,
    limit: int,
) -> list[asyncpg.Record]:
    """Return schedules with their states, by id. `schedule` is the key or the id of one."""
    rows: list[asyncpg.Record] = await connection.fetch(_SCHEDULES, after, tenant, schedule, limit)
    return rows


async def load_history_starts(connection: asyncpg.Connection) -> Mapping[str, datetime]:
    """Return the times before which the retention has removed runs, by tenant.

    The tenant without a name has the time of the other tenants.
    """
    return {row["tenant"]: row["removed_until"] for row in await connection.fetch(_MARKS)}


async def load_versions(
    connection: asyncpg.Connection, ids: Sequence[UUID]
) -> Mapping[UUID, list[asyncpg.Record]]:
    """Return all versions by schedule, in their order.

    A version that was never in force may have runs that the ticker staged early.
    """
    rows = await connection.fetch(_VERSIONS, ids)
    return {id_: list(each) for id_, each in groupby(rows, itemgetter("schedule_id"))}


async def load_ranges(
    connection: asyncpg.Connection, ids: Sequence[UUID], since: datetime
) -> defaultdict[UUID, list[Run]]:
    """Return the rows before `since` whose ranges end at `since` or later. An index has them."""
    ranges: defaultdict[UUID, list[Run]] = defaultdict(list)
    for row in await connection.fetch(_RANGES, ids, since):
        ranges[row["schedule_id"]].append(_run(row, ()))
    return ranges


async def load_runs(
    connection: asyncpg.Connection, ids: Sequence[UUID], *, since: datetime, until: datetime
) -> Mapping[UUID, SliceRows]:
    """Return the runs and the attempts of a slice by schedule. `ids` are in their order."""
    if not ids:
        return {}
    attempt_rows = await connection.fetch(_ATTEMPTS, ids, since, until, ids[0], ids[-1])
    attempts = {key: tuple(map(_attempt, each)) for key, each in groupby(attempt_rows, _run_key)}
    rows: dict[UUID, SliceRows] = defaultdict(SliceRows)
    for row in await connection.fetch(_RUNS, ids, since, until, ids[0], ids[-1]):
        rows[row["schedule_id"]].runs.append(_run(row, attempts.pop(_run_key(row), ())))
    for schedule_id, time in attempts:
        rows[schedule_id].orphans.append(time)
    return rows


def _run(row: asyncpg.Record, attempts: tuple[Attempt, ...]) -> Run:
    columns = dict(row)
    del columns["schedule_id"]
    return Run(attempts=attempts, **columns)


def _attempt(row: asyncpg.Record) -> Attempt:
    return Attempt(
        replay_number=row["replay_number"],
        number=row["number"],
        outcome=row["outcome"],
        started_at=row["started_at"],
    )
