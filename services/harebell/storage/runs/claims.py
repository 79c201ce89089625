"""What an executor does to the ledger before a run ends: claim, renew, drop, release."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final, NamedTuple, TypeGuard

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import RunState
from harebell.storage.runs import in_key_order, key_arrays, nullable_array

# Tickets of a transaction that failed may say the same seq, and an earlier time than the row. A
# ticket tells milliseconds, and a row whose time has come may start by whatever ticket of its seq.
_CLAIM: Final = """
UPDATE runs r SET state = 'running', seq = r.seq + 1, attempt = r.attempt + 1,
                  lease_holder = $7, lease_until = now() + make_interval(secs => t.lease),
                  lease_seconds = t.lease, started_at = NULL, next_attempt_at = NULL,
                  reason = NULL, stop_requested_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::int[], $5::text[], $6::float8[],
            $8::timestamptz[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, version, override, lease, due_at, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') AND r.seq = t.seq AND r.version = t.version
            AND r.override::text IS NOT DISTINCT FROM t.override
            AND (r.expires_at IS NULL OR r.expires_at > now())
            AND coalesce(r.next_attempt_at, r.due_at)
                <= greatest(t.due_at + interval '1 millisecond', now())
           THEN true ELSE false END
RETURNING t.k, r.seq, r.attempt
"""
_FOUND: Final = """
SELECT t.k, r.seq, r.state, r.attempt, r.lease_holder, r.version,
       coalesce(r.expires_at <= now(), false) AS expired
FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY AS t(scheduled_for, schedule_id, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
"""
_RENEW: Final = """
WITH held AS (
    SELECT t.k, t.started_at, r.scheduled_for, r.schedule_id
    FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::timestamptz[])
         WITH ORDINALITY AS t(scheduled_for, schedule_id, token, started_at, k)
    JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
    WHERE CASE WHEN r.state = 'running' AND r.seq = t.token THEN true ELSE false END
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET lease_until = now() + make_interval(secs => r.lease_seconds),
                  started_at = held.started_at
FROM held
WHERE r.scheduled_for = held.scheduled_for AND r.schedule_id = held.schedule_id
RETURNING held.k,
          CASE WHEN r.stop_requested_at IS NOT NULL THEN coalesce(r.reason, 'cancelled') END AS stop
"""
_DROP: Final = """
UPDATE runs r SET state = 'cancelled', seq = r.seq + 1, attempt = r.attempt - 1,
                  outcome = 'cancelled', reason = coalesce(r.reason, 'cancelled'),
                  finished_at = now(), lease_until = NULL, lease_holder = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'running' AND r.seq = t.token AND r.stop_requested_at IS NOT NULL
           THEN true ELSE false END
RETURNING t.k
"""
_RELEASE: Final = """
UPDATE runs r SET state = CASE WHEN r.attempt > 1 THEN 'retrying' ELSE 'staged' END,
                  seq = r.seq + 1, attempt = r.attempt - 1, lease_until = NULL,
                  lease_holder = NULL, staged_at = now(), started_at = NULL,
                  next_attempt_at = CASE WHEN r.attempt > 1 THEN now() END
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'running' AND r.seq = t.token AND r.stop_requested_at IS NULL
           THEN true ELSE false END
RETURNING t.k, r.seq
"""


@dataclass(slots=True, unsafe_hash=True)  # frozen in all but name: that takes twice the time
class ClaimKey:
    """What a ticket says its row will say. `lease` in seconds; `due_at`: when it would start."""

    key: RunKey
    seq: int
    version: int
    override: str | None
    lease: float
    due_at: datetime = field(compare=False)  # of copies that differ in it, one may claim

    def is_in_time_for(self, not_before: datetime | None) -> bool:
        """As the claim itself compares."""
        return not_before is None or not_before <= self.due_at + RESOLUTION

    def matches(self, claim: "Claim | None") -> TypeGuard["Claim"]:
        """Whether it is this ticket that claimed its run, and not another one of the same run."""
        return claim is not None and claim.token == self.seq + 1


class Claim(NamedTuple):
    """A claimed run. `token` is the sequence number that fences renewals and the completion.

    `started_at` is None until the attempt starts.
    """

    key: RunKey
    token: int
    attempt: int
    started_at: datetime | None = None


async def claim(
    connection: asyncpg.Connection | asyncpg.Pool, keys: Sequence[ClaimKey], holder: str
) -> dict[RunKey, Claim]:
    """What became mine; a stale, cancelled, replaced or expired run is simply not in it."""
    ordered = in_key_order(keys)
    rows = await connection.fetch(
        _CLAIM,
        *key_arrays(each.key for each in ordered),
        [each.seq for each in ordered],
        [each.version for each in ordered],
        nullable_array(each.override for each in ordered),
        [each.lease for each in ordered],
        holder,
        [each.due_at for each in ordered],
    )
    claims = (Claim(ordered[row["k"] - 1].key, row["seq"], row["attempt"]) for row in rows)
    return {each.key: each for each in claims}


class ClaimRejection(Enum):
    """Why a claim did not hold."""

    NOT_VISIBLE_YET = auto()  # the ticket has outrun its commit: there may be more to come
    STALE = auto()  # the row has gone on; or it will never start


async def explain_rejection(
    pool: asyncpg.Pool, rejected: Sequence[ClaimKey], holder: str
) -> dict[ClaimKey, ClaimRejection | Claim]:
    """Reads refused claims back: one whose commit was unknown may be mine after all."""
    rows = await pool.fetch(_FOUND, *key_arrays(each.key for each in rejected))
    found = {rejected[row["k"] - 1].key: row for row in rows}
    return {each: _explained(each, found.get(each.key), holder) for each in rejected}


def _explained(wanted: ClaimKey, row: asyncpg.Record | None, holder: str) -> ClaimRejection | Claim:
    if row is None or wanted.seq > row["seq"]:
        return ClaimRejection.NOT_VISIBLE_YET
    running = row["state"] == RunState.RUNNING
    if running and row["lease_holder"] == holder and row["seq"] == wanted.seq + 1:
        return Claim(wanted.key, row["seq"], row["attempt"])
    if row["seq"] != wanted.seq:
        return ClaimRejection.STALE
    # a row that can be claimed has been committed since the claim looked
    waits = row["state"] in (RunState.STAGED, RunState.RETRYING) and not row["expired"]
    return (
        ClaimRejection.NOT_VISIBLE_YET
        if running or (waits and row["version"] == wanted.version)
        else ClaimRejection.STALE
    )


async def renew(pool: asyncpg.Pool, held: Sequence[Claim]) -> dict[RunKey, str | None]:
    """What is still mine, and why it is asked to stop; rows that are locked are passed over."""
    ordered = in_key_order(held)
    started = nullable_array(each.started_at for each in ordered)
    rows = await pool.fetch(_RENEW, *_tokens(ordered), started)
    return {ordered[row["k"] - 1].key: row["stop"] for row in rows}


async def cancel_unstarted(
    connection: asyncpg.Connection | asyncpg.Pool, held: Sequence[Claim]
) -> set[RunKey]:
    """Runs that were asked to stop and have not started: as if never attempted."""
    ordered = in_key_order(held)
    rows = await connection.fetch(_DROP, *_tokens(ordered))
    return {ordered[row["k"] - 1].key for row in rows}


async def return_unstarted(
    connection: asyncpg.Connection, held: Sequence[Claim]
) -> dict[RunKey, int]:
    """Runs that have not started go back, the attempt unused; their new seq.

    Not those that were asked to stop: their leases lapse, and the sweep cancels them.
    """
    ordered = in_key_order(held)
    rows = await connection.fetch(_RELEASE, *_tokens(ordered))
    return {ordered[row["k"] - 1].key: row["seq"] for row in rows}


def _tokens(held: Sequence[Claim]) -> tuple[list[datetime], list[object], list[int]]:
    moments, schedules = key_arrays(each.key for each in held)
    return moments, list(schedules), [each.token for each in held]
