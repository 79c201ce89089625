"""Rate limits: one locked row for each key.

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
from harebell.storage.runs import key_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    lock_claimable: str
    lock_rate_limits: str
    save_rate_limits: str
    delete_expired: str


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
)


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


async def delete_expired(pool: asyncpg.Pool) -> None:
    """Delete the rate limits whose state has expired."""
    await pool.execute(STATEMENTS.delete_expired)
