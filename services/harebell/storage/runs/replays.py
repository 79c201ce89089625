"""Replays in the ledger: dead runs that are staged again with their next replay number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.run_states import Actor, RunState
from harebell.storage.runs import before, key_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    lock_schedules: str
    stage: str
    reopen: str


STATEMENTS: Final = ReplayStatements(
    # A ticker locks the state of a schedule before the runs, so the reverse order could deadlock.
    lock_schedules="""
SELECT schedule_id FROM schedule_state WHERE schedule_id = ANY($1::uuid[])
ORDER BY schedule_id FOR UPDATE
""",
    # A person requests the replay now, so an expiry or a stop request of the past must not end it.
    stage=f"""
WITH dead_run AS (
    SELECT dead_letter.id, dead_letter.override, run.scheduled_for, run.schedule_id
    FROM unnest($2::uuid[], $3::timestamptz[], $4::uuid[], $5::integer[], $7::text[])
        AS dead_letter (id, scheduled_for, schedule_id, replay_number, override)
    JOIN runs AS run ON run.scheduled_for = dead_letter.scheduled_for
        AND run.schedule_id = dead_letter.schedule_id
    WHERE run.state {before(Actor.REPLAY, RunState.STAGED)}
        AND run.replay_number = dead_letter.replay_number
        AND run.tenant = $1
    ORDER BY run.scheduled_for, run.schedule_id
    FOR UPDATE OF run
)
UPDATE runs AS run
SET state = 'staged', seq = run.seq + 1, replay_number = run.replay_number + 1, attempt = 0,
    failed_probes = NULL,
    reason = NULL, outcome = NULL, expires_at = NULL, next_attempt_at = now(),
    lease_holder = NULL, lease_until = NULL, lease_seconds = NULL, stop_requested_at = NULL,
    pool = coalesce($6, run.pool), override = dead_run.override::json,
    started_at = NULL, finished_at = NULL, staged_at = now()
FROM dead_run
WHERE run.scheduled_for = dead_run.scheduled_for AND run.schedule_id = dead_run.schedule_id
    AND run.tenant = $1
RETURNING dead_run.id
""",
    # Without its time among the open runs, a cancelled schedule would not cancel the replayed run.
    # A dead run that is no longer open has been counted, and its next end counts again.
    reopen="""
UPDATE schedule_state AS state
SET open_runs = state.open_runs || reopened.times,
    executions = greatest(0, state.executions - cardinality(reopened.times)),
    failures = greatest(0, state.failures - cardinality(reopened.times))
FROM (
    SELECT run.schedule_id, array_agg(DISTINCT run.scheduled_for) AS times
    FROM unnest($1::uuid[], $2::timestamptz[]) AS run (schedule_id, scheduled_for)
    JOIN schedule_state AS locked ON locked.schedule_id = run.schedule_id
    WHERE run.scheduled_for <> ALL (locked.open_runs)
    GROUP BY run.schedule_id
) AS reopened
WHERE state.schedule_id = reopened.schedule_id
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedReplay:
    """A dead run to stage again, for the dead letter with this id."""

    id: UUID
    key: RunKey
    replay_number: int  # of the dead run
    override: str | None  # JSON with the fields of the run spec that the next replay replaces


async def stage_replays(
    connection: asyncpg.Connection,
    tenant: str,
    requested: Sequence[RequestedReplay],
    *,
    pool: str | None = None,
) -> frozenset[UUID]:
    """Stage each dead run with its next replay number. Return the dead letters of the staged runs.

    A run that is no longer dead, or that has a later replay number, stays unchanged.
    `pool` replaces the pool of the runs.
    """
    times, schedules = key_arrays(each.key for each in requested)
    await connection.execute(STATEMENTS.lock_schedules, schedules)
    rows = await connection.fetch(
        STATEMENTS.stage,
        tenant,
        [each.id for each in requested],
        times,
        schedules,
        [each.replay_number for each in requested],
        pool,
        [each.override for each in requested],
    )
    staged = frozenset(row["id"] for row in rows)
    times, schedules = key_arrays(each.key for each in requested if each.id in staged)
    await connection.execute(STATEMENTS.reopen, schedules, times)
    return staged
