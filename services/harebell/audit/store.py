"""The audit's connection: for reading only, and patient; nobody waits for it."""

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
    CONNECT_TIMEOUT,
    TIMEOUT_SETTINGS,
    plain_url,
    translate_db_errors,
)

NAME: Final = "harebell-audit"
STATEMENT: Final = "60s"  # a stretch of a day's rows, cold
COMMAND_TIMEOUT: Final = 65.0  # seconds; above it, for a connection gone silent


@asynccontextmanager
async def connect_read_only(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Raises `DatabaseUnavailable`."""
    settings = TIMEOUT_SETTINGS | {
        "application_name": NAME,
        "default_transaction_read_only": "on",
        "idle_in_transaction_session_timeout": STATEMENT,
        "statement_timeout": STATEMENT,
    }
    with translate_db_errors():
        connection = await asyncpg.connect(
            plain_url(url),
            timeout=CONNECT_TIMEOUT,
            command_timeout=COMMAND_TIMEOUT,
            server_settings=settings,
        )
    try:
        yield connection
    finally:
        connection.terminate()


_SCHEDULES: Final = """
SELECT s.id, s.tenant, s.key, s.version AS shown, t.version, t.state, t.planned_until,
       t.dispatched, t.next_at, t.awaited_run, t.pending_at
FROM schedules s LEFT JOIN schedule_state t ON t.schedule_id = s.id
WHERE s.id > $1 AND ($2::text IS NULL OR s.tenant = $2)
  AND ($3::text IS NULL OR s.key = $3 OR s.id::text = $3)
ORDER BY s.id LIMIT $4
"""
_VERSIONS: Final = """
SELECT schedule_id, version, definition, effective_at, anchor_at, status, planned_from, planned_until
FROM schedule_versions WHERE schedule_id = ANY($1)
ORDER BY schedule_id, version
"""
_COLUMNS: Final = (
    *(
        "tenant",
        "version",
        "origin",
        "state",
        "reason",
        "outcome",
        "seq",
        "replay_number",
        "attempt",
    ),
    *("due_at", "expires_at", "next_attempt_at", "lease_holder", "lease_until", "staged_at"),
    *("started_at", "finished_at", "range_until", "range_count"),
)
# A batch lies between its first and its last schedule; hidden in CASE, the others among them do
# not tempt the planner to walk through the whole stretch once for each schedule.
_SELECT: Final = f"SELECT scheduled_for, schedule_id, {', '.join(_COLUMNS)} FROM runs "  # noqa: S608  # ours
_RUNS: Final = (
    _SELECT
    + """
WHERE scheduled_for >= $2 AND scheduled_for < $3 AND schedule_id >= $4 AND schedule_id <= $5
  AND CASE WHEN schedule_id = ANY($1) THEN true ELSE false END
ORDER BY schedule_id, scheduled_for
"""
)
_RANGES: Final = (
    _SELECT
    + """
WHERE schedule_id = ANY($1) AND scheduled_for < $2 AND range_until >= $2
ORDER BY schedule_id, scheduled_for
"""
)
_ATTEMPTS: Final = """
SELECT scheduled_for, schedule_id, replay_number, number, outcome, started_at FROM attempts
WHERE scheduled_for >= $2 AND scheduled_for < $3 AND schedule_id >= $4 AND schedule_id <= $5
  AND CASE WHEN schedule_id = ANY($1) THEN true ELSE false END
ORDER BY schedule_id, scheduled_for, replay_number, number
"""


@dataclass(slots=True)
class Rows:
    """Of one schedule in one stretch. `orphans`: instants that have attempts and no run."""

    runs: list[Run] = field(default_factory=list)
    orphans: list[datetime] = field(default_factory=list)


async def schedules(
    connection: asyncpg.Connection, after: UUID, tenant: str | None, name: str | None, limit: int
) -> list[asyncpg.Record]:
    """`name`: the key or the id of the only one."""
    rows: list[asyncpg.Record] = await connection.fetch(_SCHEDULES, after, tenant, name, limit)
    return rows


async def versions(
    connection: asyncpg.Connection, ids: Sequence[UUID]
) -> Mapping[UUID, list[asyncpg.Record]]:
    """In their order; also those that never came into force: runs were staged ahead for them."""
    rows = await connection.fetch(_VERSIONS, ids)
    return {id_: list(each) for id_, each in groupby(rows, itemgetter("schedule_id"))}


async def ranges(
    connection: asyncpg.Connection, ids: Sequence[UUID], since: datetime
) -> defaultdict[UUID, list[Run]]:
    """Rows from before that stand for instants from then on; they have an index of their own."""
    found: defaultdict[UUID, list[Run]] = defaultdict(list)
    for row in await connection.fetch(_RANGES, ids, since):
        found[row["schedule_id"]].append(_run(row, ()))
    return found


async def runs(
    connection: asyncpg.Connection, ids: Sequence[UUID], since: datetime, until: datetime
) -> Mapping[UUID, Rows]:
    """`ids` in their order."""
    if not ids:
        return {}
    asked = (ids, since, until, ids[0], ids[-1])
    attempts = await connection.fetch(_ATTEMPTS, *asked)
    place = itemgetter("schedule_id", "scheduled_for")
    tried = {key: tuple(map(_attempt, each)) for key, each in groupby(attempts, place)}
    found: dict[UUID, Rows] = defaultdict(Rows)
    for row in await connection.fetch(_RUNS, *asked):
        found[row["schedule_id"]].runs.append(_run(row, tried.pop(place(row), ())))
    for schedule, at in tried:
        found[schedule].orphans.append(at)
    return found


def _run(row: asyncpg.Record, attempts: tuple[Attempt, ...]) -> Run:
    columns = {name: row[name] for name in _COLUMNS}
    return Run(at=row["scheduled_for"], attempts=attempts, **columns)


def _attempt(row: asyncpg.Record) -> Attempt:
    return Attempt(row["replay_number"], row["number"], row["outcome"], row["started_at"])
