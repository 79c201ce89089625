"""The SQL of the retention: bounded batches of rows, and whole days of the ledger."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from harebell.ticker.model.retention import (
    MIN_AGE_OF_END,
    ONE_DAY,
    Ages,
    Cutoffs,
    Examination,
    start_of,
)

STATEMENT_TIMEOUT: Final = timedelta(seconds=60)
CLIENT_TIMEOUT: Final = 65.0  # seconds; above the statement timeout, for a lost connection
COUNT_TIMEOUT: Final = 1_800.0  # seconds, of a statement that counts a whole part
FIRST_ID: Final = UUID(int=0)
MARK_OF_OTHERS: Final = ""  # the row of the tenants without an own row in `history_marks`

_SETTINGS: Final = f"""
SELECT set_config('statement_timeout', '{STATEMENT_TIMEOUT // timedelta(milliseconds=1)}', true),
    set_config('enable_hashjoin', 'on', true),
    set_config('plan_cache_mode', 'force_custom_plan', true)
"""
_COUNT_SETTINGS: Final = f"SET LOCAL statement_timeout = '{COUNT_TIMEOUT:.0f}s'"
# A slice has few schedules, also where the statistics do not know how many a table contains.
_SLICE_SETTINGS: Final = f"""
SELECT set_config('statement_timeout', '{STATEMENT_TIMEOUT // timedelta(milliseconds=1)}', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_seqscan', 'off', true),
    set_config('plan_cache_mode', 'force_custom_plan', true)
"""

# Parameters: $1 and $2 are the bounds of the day, $3 is the default cutoff, $4 and $5 are the
# tenants with own cutoffs, $6 is the minimum age of an end.
_NEEDED: Final = """
policy AS MATERIALIZED (
    SELECT * FROM unnest($4::text[], $5::timestamptz[]) AS policy (tenant, cutoff)
), needed AS MATERIALIZED (
    SELECT DISTINCT d.tenant, d.schedule_id, d.scheduled_for FROM dead_letters d
    WHERE d.scheduled_for >= $1 AND d.scheduled_for < $2
      AND (d.state = 'open' OR d.id IN (
          SELECT dead_letter_id FROM replay_items WHERE status = 'replayed' AND outcome IS NULL))
)
"""
_REASON: Final = """
CASE WHEN r.state = 'unresolved' THEN 'unresolved'
     WHEN r.finished_at IS NULL THEN 'open'
     WHEN r.finished_at > now() - $6::interval THEN 'recent_end'
     WHEN r.scheduled_for >= coalesce(policy.cutoff, $3) THEN 'age'
     WHEN r.range_until >= coalesce(policy.cutoff, $3) THEN 'range'
     WHEN needed.schedule_id IS NOT NULL THEN 'dead_letter' END
"""
_JOINS: Final = """
LEFT JOIN policy ON policy.tenant = r.tenant
LEFT JOIN needed ON needed.tenant = r.tenant AND needed.schedule_id = r.schedule_id
    AND needed.scheduled_for = r.scheduled_for
"""
_FIND_KEPT: Final = f"""
WITH {_NEEDED}
SELECT EXISTS (
    SELECT FROM (SELECT * FROM runs WHERE scheduled_for >= $7 AND scheduled_for < $8 OFFSET 0) r
    {_JOINS} WHERE {_REASON} IS NOT NULL)
"""  # noqa: S608  # the parts are constants
# `seq` omits a run that a transition has changed since the examination.
_REMOVE_RUNS: Final = f"""
WITH {_NEEDED}, examined AS MATERIALIZED (
    SELECT r.scheduled_for, r.schedule_id, r.seq, {_REASON} AS reason
    FROM (SELECT * FROM runs WHERE scheduled_for >= $1 AND scheduled_for < $2
            AND (scheduled_for, schedule_id) > ($7, $8)
          ORDER BY scheduled_for, schedule_id LIMIT $9) r {_JOINS}
), removed AS (
    DELETE FROM runs r USING examined e
    WHERE r.scheduled_for = e.scheduled_for AND r.schedule_id = e.schedule_id AND r.seq = e.seq
      AND r.scheduled_for >= $1 AND r.scheduled_for < $2
      AND e.reason IS NULL AND r.finished_at IS NOT NULL
    RETURNING r.*
), removed_attempts AS (
    DELETE FROM attempts a USING removed r
    WHERE a.scheduled_for = r.scheduled_for AND a.schedule_id = r.schedule_id
      AND a.scheduled_for >= $1 AND a.scheduled_for < $2
    RETURNING a.*
) %s
SELECT count(*) AS examined, count(*) FILTER (WHERE reason <> 'age') AS held,
       (SELECT count(*) FROM removed) AS runs, (SELECT count(*) FROM removed_attempts) AS attempts,
       max(scheduled_for) AS last_time,
       (SELECT schedule_id FROM examined
        ORDER BY scheduled_for DESC, schedule_id DESC LIMIT 1) AS last_id
FROM examined
"""  # noqa: S608  # the parts are constants
_INTO_PART: Final = """
, kept_runs AS (INSERT INTO retired_runs_{part} SELECT * FROM removed),
kept_attempts AS (INSERT INTO retired_attempts_{part} SELECT * FROM removed_attempts)
"""
_DAYS: Final = """
SELECT to_date(right(child.relname, 8), 'YYYYMMDD') FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'runs'::regclass AND child.relname ~ '^runs_[0-9]{8}$' ORDER BY 1
"""
_PAST_DAYS: Final = """
SELECT DISTINCT (scheduled_for AT TIME ZONE 'UTC')::date FROM runs
WHERE scheduled_for < $1 ORDER BY 1 LIMIT $2
"""
_MARK: Final = """
INSERT INTO history_marks AS m (tenant, removed_until, retention)
SELECT t.tenant, greatest(t.removed_until, (
           SELECT removed_until FROM history_marks others WHERE others.tenant = $4
               AND NOT EXISTS (SELECT FROM history_marks own WHERE own.tenant = t.tenant))),
       t.retention
FROM unnest($1::text[], $2::timestamptz[], $3::interval[]) AS t (tenant, removed_until, retention)
ON CONFLICT (tenant) DO UPDATE SET
    removed_until = greatest(m.removed_until, excluded.removed_until),
    retention = CASE WHEN excluded.removed_until >= m.removed_until THEN excluded.retention
                     ELSE m.retention END
WHERE (m.removed_until, m.retention) IS DISTINCT FROM (excluded.removed_until, excluded.retention)
"""
_EXAMINATION: Final = "SELECT scope, examined_at, is_final FROM examined_days WHERE day = $1"
_RECORD_EXAMINATION: Final = """
INSERT INTO examined_days (day, scope, examined_at, is_final) VALUES ($1, $2, now(), $3)
ON CONFLICT (day) DO UPDATE SET scope = excluded.scope, examined_at = excluded.examined_at,
    is_final = excluded.is_final
"""
_FORGET_EXAMINATIONS: Final = "DELETE FROM examined_days WHERE day <> ALL ($1::date[])"
_PARTS: Final = """
SELECT day, part, needs_archive, archived_at IS NOT NULL AS is_archived
FROM archive_parts WHERE removed_at IS NULL ORDER BY day, part
"""
_RECORD_ARCHIVE: Final = """
UPDATE archive_parts SET archived_at = now(), runs = $3, attempts = $4, bytes = $5
WHERE day = $1 AND part = $2
"""
_TAKE_LEASE: Final = """
INSERT INTO maintenance_leases AS l (task, holder, lease_until)
VALUES ($1, $2, now() + $3::interval)
ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
WHERE l.lease_until < now() AND (l.finished_at IS NULL OR l.finished_at <= now() - $4::interval)
RETURNING true
"""
_RENEW_LEASE: Final = """
UPDATE maintenance_leases SET lease_until = now() + $3::interval
WHERE task = $1 AND holder = $2 AND lease_until >= now() RETURNING true
"""
_END_LEASE: Final = """
UPDATE maintenance_leases
SET lease_until = '-infinity', finished_at = CASE WHEN $3 THEN now() ELSE finished_at END
WHERE task = $1 AND holder = $2
"""
_MARK_ARCHIVE: Final = """
INSERT INTO maintenance_leases AS l (task, holder, lease_until)
VALUES ($1, $2, now() + $3::interval)
ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
"""
_IS_ARCHIVED: Final = "SELECT lease_until >= now() FROM maintenance_leases WHERE task = $1"
_REPORT: Final = """
WITH days AS (
    SELECT min(to_date(right(child.relname, 8), 'YYYYMMDD')) AS first FROM pg_inherits
    JOIN pg_class AS child ON child.oid = inhrelid
    WHERE inhparent = 'runs'::regclass AND child.relname ~ '^runs_[0-9]{8}$'
)
SELECT (SELECT finished_at FROM maintenance_leases WHERE task = $1) AS finished_at,
       least((SELECT first FROM days),
             (SELECT (min(scheduled_for) AT TIME ZONE 'UTC')::date FROM runs
              WHERE scheduled_for < (SELECT first::timestamp AT TIME ZONE 'UTC' FROM days))
       ) AS oldest_day
"""

# The archive omits `override`, because it may contain a target with its secrets.
_LINES: Final = """
SELECT {key}, (jsonb_strip_nulls(to_jsonb(r)) - 'override'
    || jsonb_strip_nulls(jsonb_build_object('tenant', s.tenant, 'key', s.key)))::text AS line
FROM (SELECT * FROM retired_{kind}_{part} WHERE ({key}) > ({first}) ORDER BY {key} LIMIT {limit}) r
LEFT JOIN schedules s ON s.id = r.schedule_id ORDER BY {key}
"""
_KEYS: Final = {
    "runs": {"scheduled_for": "timestamptz", "schedule_id": "uuid"},
    "attempts": {
        "scheduled_for": "timestamptz",
        "schedule_id": "uuid",
        "replay_number": "integer",
        "number": "integer",
    },
}
_BEFORE_ALL: Final = (start_of(date.min), FIRST_ID, -1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Removed rows of one day that are in their own tables until the archive contains them."""

    day: date
    number: int
    needs_archive: bool
    is_archived: bool

    @property
    def name(self) -> str:
        """The end of the names of its tables."""
        return f"{self.day:%Y%m%d}_{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One batch of a day. `last` is the last examined key, or None after the last run."""

    runs: int
    attempts: int
    held: int  # runs that stay for another reason than their age
    last: tuple[datetime, UUID] | None


@asynccontextmanager
async def long_transaction(pool: asyncpg.Pool) -> AsyncIterator[asyncpg.Connection]:
    """Open a transaction whose statements may read a whole day."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(_SETTINGS)
        yield connection


@asynccontextmanager
async def slice_transaction(pool: asyncpg.Pool) -> AsyncIterator[asyncpg.Connection]:
    """Open a transaction whose statements read a slice of the schedules by primary key."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(_SLICE_SETTINGS)
        yield connection


async def database_now(pool: asyncpg.Pool) -> datetime:
    now: datetime = await pool.fetchval("SELECT now()")
    return now


async def take_lease(
    pool: asyncpg.Pool, task: str, holder: str, *, length: timedelta, every: timedelta
) -> bool:
    """Take the lease of a task whose last success is at least `every` ago.

    Return False if another ticker has the lease or has succeeded since.
    """
    return bool(await pool.fetchval(_TAKE_LEASE, task, holder, length, every))


async def renew_lease(pool: asyncpg.Pool, task: str, holder: str, *, length: timedelta) -> bool:
    """Renew the lease. Return False if it has expired."""
    return bool(await pool.fetchval(_RENEW_LEASE, task, holder, length))


async def end_lease(pool: asyncpg.Pool, task: str, holder: str, *, has_succeeded: bool) -> None:
    """End the lease, and record the success of its task."""
    await pool.execute(_END_LEASE, task, holder, has_succeeded)


async def mark_archive(pool: asyncpg.Pool, task: str, holder: str, *, length: timedelta) -> None:
    """Record for `length` that the removed runs of this ledger go to an archive."""
    await pool.execute(_MARK_ARCHIVE, task, holder, length)


async def is_archived(pool: asyncpg.Pool, task: str) -> bool:
    """Return whether a ticker has recorded that the removed runs go to an archive."""
    return bool(await pool.fetchval(_IS_ARCHIVED, task))


async def report(pool: asyncpg.Pool, task: str) -> tuple[datetime | None, date | None]:
    """Return the time of the last success of any ticker, and the oldest day of the ledger."""
    row = await pool.fetchrow(_REPORT, task)
    return row["finished_at"], row["oldest_day"]


async def mark_history(pool: asyncpg.Pool, ages: Ages, cutoffs: Cutoffs) -> None:
    """Record the times before which runs are removed, before the first removal.

    The times never decrease, because removed runs do not return with a longer retention. A tenant
    that gets a retention of its own begins with the time of the others, and a tenant that loses it
    continues with the retention of the others.
    """
    known = [row[0] for row in await pool.fetch("SELECT tenant FROM history_marks")]
    names = sorted({MARK_OF_OTHERS, *ages.tenants, *known})
    await pool.execute(
        _MARK,
        list(names),
        [cutoffs.of(name) for name in names],
        [ages.tenants.get(name, ages.default) for name in names],
        MARK_OF_OTHERS,
    )


async def list_days(pool: asyncpg.Pool, *, limit: int) -> tuple[list[date], list[date]]:
    """Return the days with a partition, and the earlier days with runs, the oldest first."""
    days = [row[0] for row in await pool.fetch(_DAYS)]
    if not days:
        return [], []
    async with long_transaction(pool) as connection:
        rows = await connection.fetch(_PAST_DAYS, start_of(days[0]), limit, timeout=CLIENT_TIMEOUT)
    return days, [row[0] for row in rows]


async def examination(pool: asyncpg.Pool, day: date) -> Examination | None:
    """Return the last examination of a day after which runs of the day stayed."""
    row = await pool.fetchrow(_EXAMINATION, day)
    return row and Examination(row["scope"], row["examined_at"], row["is_final"])


async def record_examination(pool: asyncpg.Pool, day: date, scope: str, *, is_final: bool) -> None:
    await pool.execute(_RECORD_EXAMINATION, day, scope, is_final)


async def forget_examinations(pool: asyncpg.Pool, days: Sequence[date]) -> None:
    """Delete the examinations of other days than these."""
    await pool.execute(_FORGET_EXAMINATIONS, list(days))


async def has_kept_run(
    pool: asyncpg.Pool, day: date, cutoffs: Cutoffs, *, since: datetime, until: datetime
) -> bool:
    """Return whether a run of this part of a day must stay."""
    async with long_transaction(pool) as connection:
        arguments = _day_arguments(day, cutoffs)
        return bool(
            await connection.fetchval(_FIND_KEPT, *arguments, since, until, timeout=CLIENT_TIMEOUT)
        )


async def has_runs(pool: asyncpg.Pool, day: date) -> bool:
    """Return whether a day has runs or attempts."""
    start, end = start_of(day), start_of(day) + ONE_DAY
    statement = (
        "SELECT EXISTS (SELECT FROM runs WHERE scheduled_for >= $1 AND scheduled_for < $2) OR "
        "EXISTS (SELECT FROM attempts WHERE scheduled_for >= $1 AND scheduled_for < $2)"
    )
    async with long_transaction(pool) as connection:
        return bool(await connection.fetchval(statement, start, end))


async def remove_runs(
    connection: asyncpg.Connection,
    day: date,
    cutoffs: Cutoffs,
    *,
    after: tuple[datetime, UUID],
    limit: int,
    part: Part | None = None,
) -> Removal:
    """Remove the runs of one batch with their attempts, or move them to the tables of a part."""
    into = "" if part is None else _INTO_PART.format(part=part.name)
    row = await connection.fetchrow(
        _REMOVE_RUNS % into, *_day_arguments(day, cutoffs), *after, limit, timeout=CLIENT_TIMEOUT
    )
    is_full = row["examined"] == limit
    return Removal(
        runs=row["runs"],
        attempts=row["attempts"],
        held=row["held"],
        last=(row["last_time"], row["last_id"]) if is_full else None,
    )


async def retire_day(pool: asyncpg.Pool, day: date, *, needs_archive: bool) -> int | None:
    """Detach the partitions of a day, and return the number of their part.

    Return None if a run of the day is open, or if a dead letter of the day is.
    Raise `LockNotAvailableError` if another transaction uses the ledger for too long.
    """
    number: int | None = await pool.fetchval(
        "SELECT harebell_retire_day($1, $2)", day, needs_archive
    )
    return number


async def open_part(pool: asyncpg.Pool, day: date) -> Part:
    """Create the tables for the removed rows of a day."""
    number: int = await pool.fetchval("SELECT harebell_open_part($1)", day)
    return Part(day=day, number=number, needs_archive=True, is_archived=False)


async def list_parts(pool: asyncpg.Pool) -> list[Part]:
    """Return the parts whose tables exist, the oldest first."""
    return [
        Part(
            day=row["day"],
            number=row["part"],
            needs_archive=row["needs_archive"],
            is_archived=row["is_archived"],
        )
        for row in await pool.fetch(_PARTS)
    ]


async def read_lines(
    pool: asyncpg.Pool, part: Part, kind: str, *, limit: int
) -> AsyncIterator[list[str]]:
    """Yield the removed rows of a part as JSON lines in the order of their keys, in batches."""
    columns = _KEYS[kind]
    statement = _LINES.format(
        key=", ".join(columns),
        kind=kind,
        part=part.name,
        first=", ".join(f"${k}::{type_}" for k, type_ in enumerate(columns.values(), 1)),
        limit=limit,
    )
    last = _BEFORE_ALL[: len(columns)]
    while True:
        async with long_transaction(pool) as connection:
            rows = await connection.fetch(statement, *last, timeout=CLIENT_TIMEOUT)
        if rows:
            yield [row["line"] for row in rows]
            last = tuple(rows[-1][: len(columns)])
        if len(rows) < limit:
            return


async def count_rows(pool: asyncpg.Pool, part: Part) -> tuple[int, int]:
    """Return the numbers of runs and of attempts in the tables of a part."""
    statement = (
        f"SELECT (SELECT count(*) FROM retired_runs_{part.name}) AS runs, "  # noqa: S608  # a day and a number
        f"(SELECT count(*) FROM retired_attempts_{part.name}) AS attempts"
    )
    async with long_transaction(pool) as connection:
        await connection.execute(_COUNT_SETTINGS)
        row = await connection.fetchrow(statement, timeout=COUNT_TIMEOUT)
    return row["runs"], row["attempts"]


async def record_archive(
    pool: asyncpg.Pool, part: Part, *, runs: int, attempts: int, size: int
) -> None:
    """Record that the archive contains the rows of a part."""
    await pool.execute(_RECORD_ARCHIVE, part.day, part.number, runs, attempts, size)


async def drop_part(pool: asyncpg.Pool, part: Part) -> None:
    """Remove the tables of a part, if the archive contains each row that it needs.

    The function counts the rows of tables that nothing else uses, however many they are.
    """
    async with long_transaction(pool) as connection:
        await connection.execute(_COUNT_SETTINGS)
        await connection.execute(
            "SELECT harebell_drop_part($1, $2)", part.day, part.number, timeout=COUNT_TIMEOUT
        )


def _day_arguments(day: date, cutoffs: Cutoffs) -> tuple[object, ...]:
    start = start_of(day)
    tenants: Mapping[str, datetime] = cutoffs.tenants
    return (
        start,
        start + ONE_DAY,
        cutoffs.default,
        list(tenants),
        list(tenants.values()),
        MIN_AGE_OF_END,
    )
