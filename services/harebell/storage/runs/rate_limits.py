"""Rate limits: one locked row for each key, and the runs that must wait for a reservation.

Every transaction locks the rows of runs first and the rows of rate limits second, each in one
order, so that no two transactions wait for each other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.rate_limit import RateLimitState
from harebell.storage.runs import in_key_order, key_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    lock_claimable: str
    lock_rate_limits: str
    save_rate_limits: str
    delete_expired: str
    delay_runs: str


STATEMENTS: Final = RateLimitStatements(
    lock_claimable="""
SELECT t.k
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
WHERE CASE WHEN r.state IN ('staged', 'retrying') AND r.seq = t.seq THEN true ELSE false END
FOR UPDATE OF r
""",
    # The statement reads the time after it has the lock. An earlier time could precede a start that
    # the previous holder of the lock has counted.
    lock_rate_limits="""
INSERT INTO rate_limits (key) SELECT key FROM unnest($1::text[]) AS key ORDER BY key
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING key, reservations, starts, clock_timestamp() AS now
""",
    save_rate_limits="""
UPDATE rate_limits SET reservations = $2, starts = $3, expires_at = $4 WHERE key = $1
""",
    delete_expired="""
DELETE FROM rate_limits WHERE expires_at < now()
""",
    # A claimed run that has not started returns its attempt. A run with a stop request stays
    # claimed until its lease expires and the rescuer cancels it.
    delay_runs="""
UPDATE runs r SET state = CASE WHEN r.state = 'running' AND r.attempt = 1 THEN 'staged'
                               WHEN r.state = 'running' THEN 'retrying' ELSE r.state END,
                  attempt = r.attempt - CASE WHEN r.state = 'running' THEN 1 ELSE 0 END,
                  seq = r.seq + 1, lease_until = NULL, lease_holder = NULL, started_at = NULL,
                  next_attempt_at = t.next_attempt_at,
                  staged_at = CASE WHEN t.is_cold THEN NULL ELSE now() END,
                  reason = 'rate_limited'
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::timestamptz[], $5::bool[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, next_attempt_at, is_cold, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'running', 'retrying') AND r.seq = t.seq
            AND r.stop_requested_at IS NULL
           THEN true ELSE false END
RETURNING t.k, r.seq
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRun:
    """A run with this `seq` that must wait until `next_attempt_at`.

    `is_cold` is true if the run waits in PostgreSQL without a ticket.
    """

    key: RunKey
    seq: int
    next_attempt_at: datetime
    is_cold: bool


async def lock_claimable(
    connection: asyncpg.Connection, tickets: Sequence[tuple[RunKey, int]]
) -> set[tuple[RunKey, int]]:
    """Lock the rows that a ticket with this key and `seq` could claim, and return their tickets."""
    ordered = sorted(tickets)
    keys, seqs = key_arrays(key for key, _ in ordered), [seq for _, seq in ordered]
    rows = await connection.fetch(STATEMENTS.lock_claimable, *keys, seqs)
    return {ordered[row["k"] - 1] for row in rows}


async def lock_rate_limits(
    connection: asyncpg.Connection, keys: Collection[str]
) -> dict[str, tuple[RateLimitState, datetime]]:
    """Lock each key until the transaction ends. Return its state and the time of its lock."""
    rows = await connection.fetch(STATEMENTS.lock_rate_limits, sorted(keys))
    return {
        row["key"]: (RateLimitState(row["reservations"], row["starts"]), row["now"]) for row in rows
    }


async def save_rate_limits(
    connection: asyncpg.Connection, states: Mapping[str, tuple[RateLimitState, datetime | None]]
) -> None:
    """Save each state and the time at which the state expires."""
    await connection.executemany(
        STATEMENTS.save_rate_limits,
        [
            (key, list(state.reservations), list(state.starts), expires_at)
            for key, (state, expires_at) in sorted(states.items())
        ],
    )


async def delay_runs(
    connection: asyncpg.Connection, runs: Sequence[DelayedRun]
) -> dict[RunKey, int]:
    """Delay the runs and return their new `seq`. Omit a run whose `seq` has changed."""
    ordered = in_key_order(runs)
    rows = await connection.fetch(
        STATEMENTS.delay_runs,
        *key_arrays(run.key for run in ordered),
        [run.seq for run in ordered],
        [run.next_attempt_at for run in ordered],
        [run.is_cold for run in ordered],
    )
    return {ordered[row["k"] - 1].key: row["seq"] for row in rows}


async def delete_expired(pool: asyncpg.Pool) -> None:
    """Delete the rate limits whose state has expired."""
    await pool.execute(STATEMENTS.delete_expired)
