"""Recovery of runs: lost tickets, overdue runs and expired leases, by the index on open runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.contract.types import EARLIEST
from harebell.domain.run_states import Actor, RunState
from harebell.storage.runs import before, key_arrays
from harebell.storage.runs.partitions import fetch_in, on_day

MAX_ROWS: Final = 500  # of one search
LOST_AFTER: Final = 4.0  # seconds after the due time, if the queues of the ticket are empty
LOST_IN_ANY_CASE_AFTER: Final = 60.0  # seconds after the due time
MAX_REPUBLISH_INTERVAL: Final = 600.0  # seconds between two tickets of one row
RETRY_LEAD: Final = 10.0  # seconds before its due time at which a cold retry is staged
SILENT_AFTER: Final = 2.0  # seconds without a renewal until a lease holder may be dead


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    find_lost_tickets: str
    expire_overdue: str
    mark_restaged: str
    find_open_days: str
    find_lease_holders: str
    lock_expired_leases: str
    database_uptime: str


STATEMENTS: Final = RecoveryStatements(
    # The interval between two tickets of a row doubles, because it is as long as the row was late
    # at its last ticket. A retry without `staged_at` waits in PostgreSQL. `find_stalled` of
    # `overlap` and `label_slots` finds the runs that wait for a slot, and this statement only the
    # expired ones. An expired run ends at once, even if a breaker still defers its ticket.
    find_lost_tickets="""
WITH late AS (
    SELECT scheduled_for, schedule_id, pool, lane, staged_at,
           coalesce(next_attempt_at, due_at) AS at, coalesce(expires_at <= now(), false) AS is_over
    FROM runs
    WHERE finished_at IS NULL AND due_at >= $6 AND due_at < now() + make_interval(secs => $1)
      AND CASE WHEN state IN ('staged', 'retrying')
                AND (coalesce(reason, '') NOT IN ('waiting_for_overlap', 'waiting_for_label')
                     OR expires_at <= now())
               THEN true ELSE false END
)
SELECT scheduled_for, schedule_id, pool, lane,
       staged_at IS NOT NULL AND at > now() - make_interval(secs => $3) AND NOT is_over
           AS can_be_queued
FROM late
WHERE CASE WHEN staged_at IS NULL THEN at < now() + make_interval(secs => $1)
           ELSE at < now() - make_interval(secs => $2)
                AND (is_over
                     OR now() - staged_at >= least(staged_at - at, make_interval(secs => $4)))
      END
ORDER BY at LIMIT $5
""",
    expire_overdue=f"""
UPDATE runs r SET state = 'expired', reason = 'expired', outcome = 'expired', seq = r.seq + 1,
                  finished_at = now(), next_attempt_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state {before(Actor.TICKER, RunState.EXPIRED)} AND r.expires_at <= now()
           THEN true ELSE false END
RETURNING r.scheduled_for, r.schedule_id, r.attempt
""",
    # The audit measures the delay of a run from its first ticket.
    mark_restaged="""
UPDATE runs r SET staged_at = now(), republished_at = now(),
                  first_staged_at = CASE WHEN r.republished_at = r.staged_at THEN r.first_staged_at
                                         ELSE r.staged_at END
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') THEN true ELSE false END
RETURNING r.scheduled_for, r.schedule_id
""",
    find_open_days="""
SELECT (scheduled_for AT TIME ZONE 'UTC')::date AS day, min(due_at) AS first_due_at
FROM runs
WHERE finished_at IS NULL AND due_at < now() + make_interval(secs => $1)
GROUP BY day
""",
    find_lease_holders="""
SELECT lease_holder, bool_or(lease_until < now()) AS has_expired,
       bool_or(lease_until - make_interval(secs => lease_seconds) <
               now() - make_interval(secs => $1)) AS is_silent
FROM runs
WHERE finished_at IS NULL AND due_at >= $3 AND due_at < now() + make_interval(secs => $2)
  AND CASE WHEN state = 'running' THEN true ELSE false END
GROUP BY lease_holder
""",
    lock_expired_leases="""
SELECT scheduled_for, schedule_id, harebell_token(epoch, seq) AS token, attempt, failed_probes,
       lease_holder, started_at, reason, stop_requested_at IS NOT NULL AS has_stop_request
FROM runs
WHERE finished_at IS NULL AND due_at >= $7 AND due_at < now() + make_interval(secs => $5)
  AND CASE WHEN state <> 'running' THEN false
           WHEN lease_holder = 'worker' THEN lease_until < now() AND lease_seconds < $6
           WHEN $2 AND lease_until < now() THEN true
           WHEN lease_holder = ANY($1)
           THEN lease_until - make_interval(secs => lease_seconds) <
                now() - make_interval(secs => $3)
           ELSE false END
ORDER BY scheduled_for, schedule_id LIMIT $4 FOR UPDATE SKIP LOCKED
""",
    database_uptime="SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8",
)


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The open runs of one search: those due from `since` on, in these partitions."""

    since: datetime = EARLIEST
    partitions: frozenset[str] = frozenset()  # empty: all


ALL_OPEN_RUNS: Final = SearchScope()


@dataclass(frozen=True, slots=True)
class OpenDay:
    """A day with open runs: the name of its partition, and the earliest due time of these runs."""

    partition: str
    first_due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTicket:
    """A run whose ticket is probably lost.

    `can_be_queued` is true if the ticket may still be in the queue of its dispatcher or pool.
    """

    key: RunKey
    pool: str
    lane: str
    can_be_queued: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredLease:
    """A running and locked row whose holder is dead or has not renewed the lease in time."""

    key: RunKey
    token: int
    attempt: int
    holder: str
    started_at: datetime | None
    stop_reason: str | None  # None: the run has no stop request
    failed_probes: int = 0  # of the earlier attempts


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """An executor with leases.

    `is_silent` is true if a lease was not renewed for `SILENT_AFTER` seconds.
    The executor may still be alive.
    """

    name: str
    is_silent: bool
    has_expired: bool


async def find_open_days(pool: asyncpg.Pool) -> list[OpenDay]:
    """Return the days with open runs that are due."""
    rows = await pool.fetch(STATEMENTS.find_open_days, RETRY_LEAD)
    return [OpenDay(on_day("runs", row["day"]), row["first_due_at"]) for row in rows]


async def find_lost_tickets(
    pool: asyncpg.Pool, scope: SearchScope = ALL_OPEN_RUNS
) -> list[LostTicket]:
    """Return the runs whose ticket is probably lost."""
    bounds = (RETRY_LEAD, LOST_AFTER, LOST_IN_ANY_CASE_AFTER, MAX_REPUBLISH_INTERVAL, MAX_ROWS)
    rows = await fetch_in(
        pool,
        STATEMENTS.find_lost_tickets,
        *bounds,
        scope.since,
        partitions=scope.partitions,
    )
    return [
        LostTicket(
            key=_key(row), pool=row["pool"], lane=row["lane"], can_be_queued=row["can_be_queued"]
        )
        for row in rows
    ]


async def expire_overdue(
    connection: asyncpg.Connection, keys: Sequence[RunKey]
) -> dict[RunKey, int]:
    """Expire the runs that are past `expires_at` and return the number of their attempts."""
    rows = await connection.fetch(STATEMENTS.expire_overdue, *key_arrays(sorted(keys)))
    return {_key(row): row["attempt"] for row in rows}


async def mark_restaged(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> list[RunKey]:
    """Lock and return the runs that are staged or retrying. Their `seq` does not change."""
    rows = await connection.fetch(STATEMENTS.mark_restaged, *key_arrays(sorted(keys)))
    return [_key(row) for row in rows]


async def find_lease_holders(
    pool: asyncpg.Pool, scope: SearchScope = ALL_OPEN_RUNS
) -> list[LeaseHolder]:
    """Return the holders of leases."""
    rows = await fetch_in(
        pool,
        STATEMENTS.find_lease_holders,
        SILENT_AFTER,
        RETRY_LEAD,
        scope.since,
        partitions=scope.partitions,
    )
    return [LeaseHolder(row["lease_holder"], row["is_silent"], row["has_expired"]) for row in rows]


async def lock_expired_leases(
    connection: asyncpg.Connection,
    dead_holders: Sequence[str],
    *,
    by_time: bool,
    reports_read_for: float = 0,
    since: datetime = EARLIEST,
) -> list[ExpiredLease]:
    """Lock the silent leases of dead holders and, with `by_time`, all leases past their end.

    For the lease of a worker, heartbeats must have been read for longer than the lease lasts:
    `reports_read_for` is that time in seconds. Only runs that are due from `since` on are searched.
    """
    rows = await connection.fetch(
        STATEMENTS.lock_expired_leases,
        dead_holders,
        by_time,
        SILENT_AFTER,
        MAX_ROWS,
        RETRY_LEAD,
        reports_read_for,
        since,
    )
    return [
        ExpiredLease(
            key=_key(row),
            token=row["token"],
            attempt=row["attempt"],
            holder=row["lease_holder"],
            started_at=row["started_at"],
            stop_reason=(row["reason"] or "cancelled") if row["has_stop_request"] else None,
            failed_probes=row["failed_probes"] or 0,
        )
        for row in rows
    ]


async def database_uptime(connection: asyncpg.Connection) -> float:
    """Return the seconds since the start of the database, whose outage must not expire leases."""
    seconds: float = await connection.fetchval(STATEMENTS.database_uptime)
    return seconds


def _key(row: asyncpg.Record) -> RunKey:
    return RunKey(row["scheduled_for"], row["schedule_id"])
