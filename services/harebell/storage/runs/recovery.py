"""What sweeps look for in the ledger, all by its one partial index on open rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.storage.runs import key_arrays

MAX_ROWS: Final = 500  # rows of one sweep
LOST_AFTER: Final = 4.0  # seconds past its time, when no ticket waits on its way
LOST_IN_ANY_CASE_AFTER: Final = 60.0  # seconds past its time
MAX_REPUBLISH_INTERVAL: Final = 600.0  # seconds between publishing one row again and again
RETRY_LEAD: Final = 10.0  # seconds before its time that a resting retry is staged
SILENT_AFTER: Final = 2.0  # seconds since its last renewal that make a holder suspect

# The wait before a row is published once more doubles: it is as long as the row was late when it
# was published last. A retry without staged_at rests until its time is near. What waits for its
# turn is not lost: `turns.stuck` finds it, and only when it has expired is it looked for here.
_LOST: Final = """
WITH late AS (
    SELECT scheduled_for, schedule_id, pool, lane, staged_at,
           coalesce(next_attempt_at, due_at) AS at
    FROM runs
    WHERE finished_at IS NULL AND due_at < now() + make_interval(secs => $1)
      AND CASE WHEN state IN ('staged', 'retrying')
                AND (reason IS DISTINCT FROM 'waiting_for_overlap' OR expires_at <= now())
               THEN true ELSE false END
)
SELECT scheduled_for, schedule_id, pool, lane,
       staged_at IS NOT NULL AND at > now() - make_interval(secs => $3) AS may_wait
FROM late
WHERE CASE WHEN staged_at IS NULL THEN at < now() + make_interval(secs => $1)
           ELSE at < now() - make_interval(secs => $2)
                AND now() - staged_at >= least(staged_at - at, make_interval(secs => $4))
      END
ORDER BY at LIMIT $5
"""
_EXPIRE: Final = """
UPDATE runs r SET state = 'expired', reason = 'expired', outcome = 'expired', seq = r.seq + 1,
                  finished_at = now(), next_attempt_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') AND r.expires_at <= now()
           THEN true ELSE false END
RETURNING r.scheduled_for, r.schedule_id, r.attempt
"""
_STAGE_AGAIN: Final = """
UPDATE runs r SET staged_at = now()
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') THEN true ELSE false END
RETURNING r.scheduled_for, r.schedule_id
"""
_HOLDERS: Final = """
SELECT lease_holder, bool_or(lease_until < now()) AS has_lapsed,
       bool_or(lease_until - make_interval(secs => lease_seconds) <
               now() - make_interval(secs => $1)) AS is_silent
FROM runs
WHERE finished_at IS NULL AND due_at < now() + make_interval(secs => $2)
  AND CASE WHEN state = 'running' THEN true ELSE false END
GROUP BY lease_holder
"""
_LAPSED: Final = """
SELECT scheduled_for, schedule_id, seq, attempt, lease_holder, started_at, reason,
       stop_requested_at IS NOT NULL AS stop
FROM runs
WHERE finished_at IS NULL AND due_at < now() + make_interval(secs => $5)
  AND CASE WHEN state <> 'running' THEN false
           WHEN $2 AND lease_until < now() THEN true
           WHEN lease_holder = ANY($1)
           THEN lease_until - make_interval(secs => lease_seconds) <
                now() - make_interval(secs => $3)
           ELSE false END
ORDER BY scheduled_for, schedule_id LIMIT $4 FOR UPDATE SKIP LOCKED
"""


@dataclass(frozen=True, slots=True)
class LostTicket:
    """A run whose ticket seems to be gone. `may_wait`: unless its queue still has work."""

    key: RunKey
    pool: str
    lane: str
    can_be_queued: bool


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    """A running row, locked, whose holder is gone or has not renewed in time."""

    key: RunKey
    token: int
    attempt: int
    holder: str
    started_at: datetime | None
    stop_reason: str | None  # of a run that was asked to stop


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Of leases. `is_silent`: one was not renewed for a while, though it may still run."""

    name: str
    is_silent: bool
    has_expired: bool


async def find_lost_tickets(pool: asyncpg.Pool) -> list[LostTicket]:
    rows = await pool.fetch(_LOST, RETRY_LEAD, LOST_AFTER, LOST_IN_ANY_CASE_AFTER, MAX_REPUBLISH_INTERVAL, MAX_ROWS)
    return [LostTicket(_key(row), row["pool"], row["lane"], row["may_wait"]) for row in rows]


async def expire_overdue(
    connection: asyncpg.Connection, keys: Sequence[RunKey]
) -> dict[RunKey, int]:
    """The attempts that each had whose time has passed."""
    rows = await connection.fetch(_EXPIRE, *key_arrays(sorted(keys)))
    return {_key(row): row["attempt"] for row in rows}


async def mark_restaged(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> list[RunKey]:
    """Those that still wait, locked; `seq` stays."""
    rows = await connection.fetch(_STAGE_AGAIN, *key_arrays(sorted(keys)))
    return [_key(row) for row in rows]


async def find_lease_holders(pool: asyncpg.Pool) -> list[LeaseHolder]:
    """Whoever holds a run; none has, when nothing runs."""
    rows = await pool.fetch(_HOLDERS, SILENT_AFTER, RETRY_LEAD)
    return [LeaseHolder(row["lease_holder"], row["is_silent"], row["has_lapsed"]) for row in rows]


async def lock_expired_leases(
    connection: asyncpg.Connection, gone: Sequence[str], *, by_time: bool
) -> list[ExpiredLease]:
    """Of holders that are gone, and (`by_time`) those whose leases have run out."""
    rows = await connection.fetch(_LAPSED, gone, by_time, SILENT_AFTER, MAX_ROWS, RETRY_LEAD)
    return [
        ExpiredLease(
            _key(row),
            row["seq"],
            row["attempt"],
            row["lease_holder"],
            row["started_at"],
            (row["reason"] or "cancelled") if row["stop"] else None,
        )
        for row in rows
    ]


async def database_uptime(connection: asyncpg.Connection) -> float:
    """Seconds since the database's start: an outage of its own must not end leases."""
    seconds: float = await connection.fetchval(
        "SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8"
    )
    return seconds


def _key(row: asyncpg.Record) -> RunKey:
    return RunKey(row["scheduled_for"], row["schedule_id"])
