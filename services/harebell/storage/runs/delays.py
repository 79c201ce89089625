"""Delays: waiting and claimed runs that must not start before a later time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason
from harebell.storage.runs import in_key_order, key_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    delay_runs: str


STATEMENTS: Final = DelayStatements(
    # A claimed run that has not started returns its attempt. A run with a stop request stays
    # claimed until its lease expires and the rescuer cancels it.
    delay_runs="""
UPDATE runs r SET state = CASE WHEN r.state = 'running' AND r.attempt = 1 THEN 'staged'
                               WHEN r.state = 'running' THEN 'retrying' ELSE r.state END,
                  attempt = r.attempt - CASE WHEN r.state = 'running' THEN 1 ELSE 0 END,
                  seq = r.seq + 1, lease_until = NULL, lease_holder = NULL, started_at = NULL,
                  next_attempt_at = t.next_attempt_at,
                  staged_at = CASE WHEN t.is_cold THEN NULL ELSE now() END,
                  reason = $6::text
FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::bool[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, next_attempt_at, is_cold, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.stop_requested_at IS NOT NULL THEN false
           WHEN r.state = 'running' THEN harebell_token(r.epoch, r.seq) = t.seq
           WHEN r.state IN ('staged', 'retrying') THEN r.seq = t.seq ELSE false END
RETURNING t.k, r.seq
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRun:
    """A run with this `seq` that must wait until `next_attempt_at`.

    `seq` is the fencing token if the run is claimed.
    `is_cold` is true if the run waits in PostgreSQL without a ticket.
    """

    key: RunKey
    seq: int
    next_attempt_at: datetime
    is_cold: bool


async def delay_runs(
    connection: asyncpg.Connection, runs: Sequence[DelayedRun], reason: Reason
) -> dict[RunKey, int]:
    """Delay the runs and return their new `seq`. Omit a run whose `seq` has changed."""
    ordered = in_key_order(runs)
    rows = await connection.fetch(
        STATEMENTS.delay_runs,
        *key_arrays(run.key for run in ordered),
        [run.seq for run in ordered],
        [run.next_attempt_at for run in ordered],
        [run.is_cold for run in ordered],
        reason.value,
    )
    return {ordered[row["k"] - 1].key: row["seq"] for row in rows}
