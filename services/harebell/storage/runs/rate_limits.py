"""Limits in SQL: one row an account, locked while it is decided about; runs that are put off.

Accounts are locked in one order, and after the rows of runs, so that no two wait crosswise.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.rate_limit import RateLimitState
from harebell.storage.runs import in_key_order, key_arrays

_DUE: Final = """
SELECT t.k
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
WHERE CASE WHEN r.state IN ('staged', 'retrying') AND r.seq = t.seq THEN true ELSE false END
FOR UPDATE OF r
"""
# The time is read when the row is mine: whoever had it before has counted earlier starts.
_OPEN: Final = """
INSERT INTO rate_limits (key) SELECT key FROM unnest($1::text[]) AS key ORDER BY key
ON CONFLICT (key) DO UPDATE SET key = excluded.account
RETURNING key, reservations, starts, clock_timestamp() AS now
"""
_KEEP: Final = """
UPDATE rate_limits SET reservations = $2, starts = $3, expires_at = $4 WHERE key = $1
"""
_FORGET: Final = """
DELETE FROM rate_limits WHERE expires_at < now()
"""
# Of a run that an executor has claimed and not started, the attempt is as if never made. One that
# was asked to stop is left: its lease lapses, and the sweep cancels it.
_PUT_OFF: Final = """
UPDATE runs r SET state = CASE WHEN r.state = 'running' AND r.attempt = 1 THEN 'staged'
                               WHEN r.state = 'running' THEN 'retrying' ELSE r.state END,
                  attempt = r.attempt - CASE WHEN r.state = 'running' THEN 1 ELSE 0 END,
                  seq = r.seq + 1, lease_until = NULL, lease_holder = NULL, started_at = NULL,
                  next_attempt_at = t.at, staged_at = CASE WHEN t.rests THEN NULL ELSE now() END,
                  reason = 'rate_limited'
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::timestamptz[], $5::bool[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, at, rests, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'running', 'retrying') AND r.seq = t.seq
            AND r.stop_requested_at IS NULL
           THEN true ELSE false END
RETURNING t.k, r.seq
"""


@dataclass(frozen=True, slots=True)
class DelayedRun:
    """A run whose row says this `seq`. `rests`: in the ledger, until its time is near."""

    key: RunKey
    seq: int
    next_attempt_at: datetime
    is_cold: bool


async def lock_claimable(
    connection: asyncpg.Connection, tickets: Sequence[tuple[RunKey, int]]
) -> set[tuple[RunKey, int]]:
    """Of these keys, each with its seq, those that could be claimed; their rows locked."""
    ordered = sorted(tickets)
    rows = await connection.fetch(
        _DUE, *key_arrays(key for key, _ in ordered), [seq for _, seq in ordered]
    )
    return {ordered[row["k"] - 1] for row in rows}


async def lock_rate_limits(
    connection: asyncpg.Connection, accounts: Collection[str]
) -> dict[str, tuple[RateLimitState, datetime]]:
    """What has been counted and what time it is, account by account, until the transaction ends."""
    rows = await connection.fetch(_OPEN, sorted(accounts))
    return {
        row["key"]: (RateLimitState(row["reservations"], row["starts"]), row["now"]) for row in rows
    }


async def save_rate_limits(
    connection: asyncpg.Connection, tallies: Mapping[str, tuple[RateLimitState, datetime | None]]
) -> None:
    """Each with when it says nothing any more."""
    await connection.executemany(
        _KEEP,
        [
            (account, list(tally.reservations), list(tally.starts), over_at)
            for account, (tally, over_at) in sorted(tallies.items())
        ],
    )


async def delay_runs(
    connection: asyncpg.Connection, runs: Sequence[DelayedRun]
) -> dict[RunKey, int]:
    """Their new seq, of those that still were as they are said to be."""
    ordered = in_key_order(runs)
    rows = await connection.fetch(
        _PUT_OFF,
        *key_arrays(run.key for run in ordered),
        [run.seq for run in ordered],
        [run.next_attempt_at for run in ordered],
        [run.is_cold for run in ordered],
    )
    return {ordered[row["k"] - 1].key: row["seq"] for row in rows}


async def delete_expired(pool: asyncpg.Pool) -> None:
    """Accounts that say nothing any more."""
    await pool.execute(_FORGET)
