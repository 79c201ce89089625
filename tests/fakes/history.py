"""History of the ledger: ended runs of past days, inserted in bulk by SQL."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

TENANT: Final = "default"

# Each run has one attempt. The runs of a day are spread evenly over the day.
_INSERT: Final = """
WITH added AS (
    INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                      due_at, attempt, started_at, finished_at, outcome, override)
    SELECT $1::timestamptz + k * (interval '1 day' / $3::int),
           ($2::uuid[])[1 + k % cardinality($2)],
           $4, 1, 3, 'default', 'normal', 5, $5,
           $1::timestamptz + k * (interval '1 day' / $3::int), 1,
           $1::timestamptz + k * (interval '1 day' / $3::int),
           $1::timestamptz + k * (interval '1 day' / $3::int) + interval '2 seconds', $5, $6::json
    FROM generate_series(0, $3::int - 1) AS k
    RETURNING scheduled_for, schedule_id, started_at, finished_at, state
)
INSERT INTO attempts (scheduled_for, schedule_id, replay_number, number, lease_holder, started_at,
                      finished_at, outcome, duration_ms)
SELECT scheduled_for, schedule_id, 0, 1, 'executor-1', started_at, finished_at,
       CASE state WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END, 2000 FROM added
"""
_OPEN_DEAD_LETTER: Final = """
INSERT INTO dead_letters (id, tenant, kind, schedule_id, scheduled_for, replay_number, reason,
    attempts, dead_at, state, payload, group_id, is_imported)
SELECT gen_random_uuid(), tenant, 'run', schedule_id, scheduled_for, 0, 'attempts_exhausted', 1,
       finished_at, $3, '{}', gen_random_uuid(), false
FROM runs WHERE scheduled_for = $1 AND schedule_id = $2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The ended runs of one day. `override` is JSON that may contain a target."""

    day: date
    ids: tuple[UUID, ...]
    count: int = 24
    tenant: str = TENANT
    state: str = "succeeded"
    override: str | None = None


async def insert_history(connection: asyncpg.Connection, history: History) -> None:
    """Insert the runs and their attempts, and the partitions of their day."""
    await connection.execute("SELECT harebell_ensure_partitions($1, $1)", history.day)
    start = datetime.fromisoformat(f"{history.day}T00:00:00+00:00")
    await connection.execute(
        _INSERT,
        start,
        list(history.ids),
        history.count,
        history.tenant,
        history.state,
        history.override,
    )


async def insert_dead_letter(
    connection: asyncpg.Connection, at: datetime, id_: UUID, *, state: str = "open"
) -> None:
    """Insert the dead letter of a run."""
    await connection.execute(_OPEN_DEAD_LETTER, at, id_, state)


async def runs_by_day(connection: asyncpg.Connection) -> dict[date, int]:
    """Return the number of runs of each day."""
    rows: list[Any] = await connection.fetch(
        "SELECT (scheduled_for AT TIME ZONE 'UTC')::date, count(*) FROM runs GROUP BY 1 ORDER BY 1"
    )
    return {row[0]: row[1] for row in rows}
