"""The SQL of the retention of schedules: versions, ended schedules, results and bulk operations.

Each statement changes a bounded number of rows, and a repeated call continues. The statements about
schedules examine a slice of them by primary key, so that none reads a whole table of schedules.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from harebell.ticker.model.retention import MIN_AGE_OF_END, Ages

_AGE: Final = "coalesce((SELECT age FROM unnest($2::text[], $3::interval[]) AS p (tenant, age)"
_DELETE_BY_AGE: Final = f"""
DELETE FROM {{table}} WHERE ctid IN (
    SELECT ctid FROM {{table}} t WHERE created_at < now() - $1::interval
      AND created_at < now() - {_AGE} WHERE p.tenant = t.tenant), $4::interval)
    LIMIT $5)
"""  # noqa: S608  # the parts are constants

_FIND_SLICE: Final = """
SELECT schedule_id FROM (
    SELECT schedule_id FROM schedule_state WHERE schedule_id > $1 ORDER BY schedule_id LIMIT $2
) AS slice
ORDER BY schedule_id DESC LIMIT 1
"""
# The runs among the open runs of a schedule count when they are read. A count without their rows
# needs them in the schedule.
_LOCK_STATES: Final = """
SELECT schedule_id FROM schedule_state s
WHERE s.schedule_id > $1 AND s.schedule_id <= $2 AND (
    s.last_run >= $3 AND s.last_run < $4
    OR EXISTS (SELECT FROM unnest(s.open_runs) AS o (at) WHERE at < $4))
ORDER BY schedule_id FOR UPDATE
"""
_COUNT_ENDED: Final = """
UPDATE schedule_state s SET
    open_runs = ARRAY(SELECT o.at FROM unnest(s.open_runs) WITH ORDINALITY AS o (at, k)
                      WHERE o.at <> ALL (ended.times) ORDER BY k),
    last_run = greatest(
        CASE WHEN ended.executions > 0 AND s.executions = 0 THEN NULL ELSE s.last_run END,
        ended.last_time),
    executions = s.executions + ended.executions,
    failures = s.failures + ended.failures
FROM (
    SELECT t.schedule_id, array_agg(r.scheduled_for) AS times,
           count(*) FILTER (WHERE r.attempt > 0) AS executions,
           count(*) FILTER (WHERE r.state = 'dead') AS failures,
           max(r.scheduled_for) FILTER (
               WHERE NOT (r.state = 'cancelled' AND r.attempt = 0
                          AND coalesce(r.reason, '') IN ('superseded', 'paused'))) AS last_time
    FROM schedule_state t CROSS JOIN LATERAL unnest(t.open_runs) AS o (at)
    CROSS JOIN LATERAL (SELECT * FROM runs WHERE runs.scheduled_for = o.at
                        AND runs.schedule_id = t.schedule_id OFFSET 0) r
    WHERE t.schedule_id = ANY($1) AND o.at < $2 AND o.at IS DISTINCT FROM t.awaited_run
      AND r.finished_at < now() - $3::interval AND r.state <> 'unresolved'
    GROUP BY t.schedule_id
) ended
WHERE s.schedule_id = ended.schedule_id
"""
_RECORD_LAST_RUNS: Final = """
INSERT INTO last_runs AS l (schedule_id, scheduled_for, state, reason, started_at, finished_at)
SELECT s.schedule_id, r.scheduled_for, r.state, r.reason, r.started_at, r.finished_at
FROM schedule_state s
CROSS JOIN LATERAL (SELECT * FROM runs WHERE runs.scheduled_for = s.last_run
                    AND runs.schedule_id = s.schedule_id OFFSET 0) r
WHERE s.schedule_id = ANY($1) AND s.last_run < $2 AND r.finished_at IS NOT NULL
ON CONFLICT (schedule_id) DO UPDATE SET scheduled_for = excluded.scheduled_for,
    state = excluded.state, reason = excluded.reason, started_at = excluded.started_at,
    finished_at = excluded.finished_at
WHERE l.scheduled_for <= excluded.scheduled_for
"""

# A replay reads the version of its run. The version in force has the highest number that became
# active, and higher numbers must stay, because the next number follows them. The runs of an old
# version are older than their retention, so only those stay that another rule keeps. They are among
# the open runs, which include the unresolved ones, or have a dead letter, or are skipped ranges.
# A search of all runs for a schedule would read every day of a tenant with a longer retention.
_DELETE_VERSIONS: Final = f"""
WITH old AS MATERIALIZED (
    SELECT v.schedule_id, v.version
    FROM schedule_versions v
    JOIN schedule_state t ON t.schedule_id = v.schedule_id
    JOIN schedules s ON s.id = v.schedule_id
    JOIN schedule_versions next ON next.schedule_id = v.schedule_id AND next.version = (
        SELECT min(later.version) FROM schedule_versions later
        WHERE later.schedule_id = v.schedule_id AND later.version > v.version
          AND later.status = 'active' AND later.effective_at < $1)
    WHERE t.schedule_id > $9 AND t.schedule_id <= $10
      AND v.version < t.version AND v.status <> 'pending' AND v.effective_at < $1
      AND greatest(next.effective_at, v.planned_until) < now() - greatest(
          {_AGE} WHERE p.tenant = s.tenant), $4::interval),
          coalesce((SELECT age FROM unnest($5::text[], $6::interval[]) AS p (tenant, age)
                    WHERE p.tenant = s.tenant), $7::interval) + interval '2 days')
      AND NOT EXISTS (SELECT FROM dead_letters d
                      WHERE d.schedule_id = v.schedule_id AND d.state = 'open')
      AND NOT EXISTS (
          SELECT FROM (
              SELECT o.at FROM unnest(t.open_runs) AS o (at)
              UNION ALL
              SELECT d.scheduled_for FROM dead_letters d WHERE d.schedule_id = v.schedule_id
          ) kept JOIN runs r ON r.scheduled_for = kept.at
          WHERE r.schedule_id = v.schedule_id AND r.version = v.version)
      AND NOT EXISTS (SELECT FROM runs r WHERE r.scheduled_for < $1
                      AND r.schedule_id = v.schedule_id AND r.range_until IS NOT NULL
                      AND r.version = v.version)
    LIMIT $8
)
DELETE FROM schedule_versions v USING old
WHERE v.schedule_id = old.schedule_id AND v.version = old.version
"""  # noqa: S608  # the parts are constants

# A schedule that a command changes at the same time is locked, and is examined again later.
_LOCK_ENDED: Final = f"""
SELECT t.schedule_id FROM schedule_state t JOIN schedules s ON s.id = t.schedule_id
WHERE t.schedule_id > $8 AND t.schedule_id <= $9
  AND t.state IN ('completed', 'cancelled', 'deleted') AND t.open_runs = '{{}}'
  AND t.awaited_run IS NULL AND t.pending_version IS NULL
  AND greatest(t.changed_at, t.planned_until, t.last_run) < now() - greatest(
      {_AGE} WHERE p.tenant = s.tenant), $4::interval),
      coalesce((SELECT age FROM unnest($5::text[], $6::interval[]) AS p (tenant, age)
                WHERE p.tenant = s.tenant), $7::interval) + interval '1 day')
  AND t.changed_at < $1
  AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.schedule_id = t.schedule_id)
  AND NOT EXISTS (SELECT FROM overlap_slots o WHERE o.schedule_id = t.schedule_id)
  AND NOT EXISTS (SELECT FROM runs r WHERE r.scheduled_for < $1
                  AND r.schedule_id = t.schedule_id AND r.range_until IS NOT NULL)
FOR UPDATE OF t SKIP LOCKED
"""  # noqa: S608  # the parts are constants
_DELETE_SCHEDULES: Final = """
WITH state AS (DELETE FROM schedule_state WHERE schedule_id = ANY($1)),
version AS (DELETE FROM schedule_versions WHERE schedule_id = ANY($1)),
last_run AS (DELETE FROM last_runs WHERE schedule_id = ANY($1))
DELETE FROM schedules WHERE id = ANY($1)
"""


@dataclass(frozen=True, slots=True)
class Slice:
    """The schedules whose ids are greater than `after`, up to and including `last`."""

    after: UUID
    last: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """The retention of runs. Runs of a time before `runs_before` have reached it in some tenant."""

    runs: Ages
    runs_before: datetime


async def find_slice(pool: asyncpg.Pool, after: UUID, limit: int) -> Slice | None:
    """Return the next slice of at most `limit` schedules, or None after the last schedule."""
    last = await pool.fetchval(_FIND_SLICE, after, limit)
    return None if last is None else Slice(after, last)


async def delete_by_age(
    connection: asyncpg.Connection, table: str, ages: Ages, *, limit: int
) -> int:
    """Delete a batch of command results or bulk operations. Return the number of rows."""
    statement = _DELETE_BY_AGE.format(table=table)
    shortest = min((ages.default, *ages.tenants.values()))
    return _row_count(await connection.execute(statement, shortest, *_arguments(ages), limit))


async def count_ended_runs(
    connection: asyncpg.Connection, schedules: Slice, *, since: datetime, until: datetime
) -> None:
    """Count the ended runs before `until` in their schedules, and record the last runs.

    A statement after the locks reads the runs, because a replay may have changed them before.
    """
    bounds = (schedules.after, schedules.last, since, until)
    ids = [row[0] for row in await connection.fetch(_LOCK_STATES, *bounds)]
    if ids:
        await connection.execute(_COUNT_ENDED, ids, until, MIN_AGE_OF_END)
        await connection.execute(_RECORD_LAST_RUNS, ids, until)


async def delete_versions(
    connection: asyncpg.Connection, schedules: Slice, ages: Ages, *, cutoff: Cutoff, limit: int
) -> int:
    """Delete versions of a slice that other versions replaced. Return the number of rows."""
    return _row_count(
        await connection.execute(
            _DELETE_VERSIONS,
            cutoff.runs_before,
            *_arguments(ages),
            *_arguments(cutoff.runs),
            limit,
            schedules.after,
            schedules.last,
        )
    )


async def delete_ended_schedules(
    connection: asyncpg.Connection, schedules: Slice, ages: Ages, *, cutoff: Cutoff
) -> int:
    """Delete the ended schedules of a slice with their versions. Return their number."""
    rows = await connection.fetch(
        _LOCK_ENDED,
        cutoff.runs_before,
        *_arguments(ages),
        *_arguments(cutoff.runs),
        schedules.after,
        schedules.last,
    )
    ids = [row[0] for row in rows]
    if ids:
        await connection.execute(_DELETE_SCHEDULES, ids)
    return len(ids)


def _arguments(ages: Ages) -> tuple[list[str], list[timedelta], timedelta]:
    return list(ages.tenants), list(ages.tenants.values()), ages.default


def _row_count(status: str) -> int:
    return int(status.rsplit(maxsplit=1)[-1])
