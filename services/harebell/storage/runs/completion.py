"""Completion of attempts: the row of the run and the row of the attempt in one fenced statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from harebell.contract.dead_letter import AttemptRecord
from harebell.contract.ids import RunKey
from harebell.domain.run_states import Actor, AttemptCompletion, RunState
from harebell.storage.runs import before, in_key_order, key_arrays, nullable_array
from harebell.storage.runs.partitions import fetch_on_day


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    complete: str
    complete_free: str
    find_stop_requests: str
    find_recorded: str
    attempt_history: str


# RETURNING contains the arrays, so that the insert needs no second join with them. A finished
# run keeps `staged_at`, because only this column shows a late or caught-up run.
_COMPLETE: Final = f"""
WITH moved AS (
    UPDATE runs r SET state = t.state, reason = t.reason, outcome = t.outcome, seq = r.seq + 1,
                      started_at = t.started_at, lease_until = NULL,
                      finished_at = CASE WHEN t.state = 'retrying' THEN NULL
                                         ELSE t.finished_at END,
                      next_attempt_at = t.next_attempt_at,
                      staged_at = CASE WHEN t.state = 'retrying' THEN t.staged_at
                                       ELSE r.staged_at END,
                      failed_probes = CASE WHEN t.is_failed_probe
                                           THEN coalesce(r.failed_probes, 0) + 1
                                           ELSE r.failed_probes END
    FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[],
                $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[],
                $11::text[], $12::text[], $13::smallint[], $14::float8[], $15::text[],
                $16::boolean[], $17::text[])
         WITH ORDINALITY AS t(scheduled_for, schedule_id, token, state, reason, outcome,
                              started_at, finished_at, next_attempt_at, staged_at,
                              error_code, error, http_status, duration_ms, result,
                              is_failed_probe, trace, k)
    WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
      AND CASE WHEN r.state {before(Actor.COMPLETE, RunState.SUCCEEDED)}
                AND harebell_token(r.epoch, r.seq) = t.token
               THEN true ELSE false END
    RETURNING t.*, r.replay_number, r.attempt, r.lease_holder, r.seq
), recorded AS (
    INSERT INTO attempts (scheduled_for, schedule_id, replay_number, number, lease_holder,
                          started_at, finished_at, outcome, error_code, error, http_status,
                          duration_ms, result, is_failed_probe, trace)
    SELECT scheduled_for, schedule_id, replay_number, attempt, lease_holder,
           started_at, finished_at, outcome, error_code, error, http_status,
           duration_ms, result, is_failed_probe, trace
    FROM moved
)
SELECT k, seq FROM moved
"""
# The runs of a batch belong to several tenants, and none waits for a locked row of another.
_SOURCE: Final = _COMPLETE[
    _COMPLETE.index("    FROM unnest(") : _COMPLETE.index("    RETURNING t.*")
]
_COMPLETE_FREE: Final = _COMPLETE.replace(
    _SOURCE,
    """    FROM free t
    WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
""",
).replace(
    "WITH moved AS (",
    f"""WITH free AS (
    SELECT t.*
{_SOURCE.replace("    WHERE", "    , runs r WHERE")}    FOR NO KEY UPDATE OF r SKIP LOCKED
), moved AS (""",
)

STATEMENTS: Final = CompletionStatements(
    complete=_COMPLETE,
    complete_free=_COMPLETE_FREE,
    find_stop_requests="""
SELECT t.k, CASE WHEN r.stop_requested_at IS NOT NULL
                 THEN coalesce(r.reason, 'cancelled') END AS stop_reason
FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
WHERE CASE WHEN r.state = 'running' AND harebell_token(r.epoch, r.seq) = t.token
           THEN true ELSE false END
ORDER BY r.scheduled_for, r.schedule_id FOR UPDATE OF r
""",
    # The run may have had later transitions, but its attempt keeps the exact time of its end.
    find_recorded="""
SELECT t.k
FROM unnest($1::timestamptz[], $2::uuid[], $3::timestamptz[], $4::text[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, finished_at, outcome, k)
JOIN attempts a ON a.scheduled_for = t.scheduled_for AND a.schedule_id = t.schedule_id
WHERE CASE WHEN a.finished_at = t.finished_at AND a.outcome = t.outcome THEN true ELSE false END
""",
    attempt_history="""
SELECT replay_number, number, lease_holder, started_at, finished_at, outcome, error_code, error,
       http_status, is_failed_probe
FROM attempts WHERE scheduled_for = $1 AND schedule_id = $2
ORDER BY replay_number, number LIMIT 1000
""",
)


async def complete(
    connection: asyncpg.Connection | asyncpg.Pool, completions: Sequence[AttemptCompletion]
) -> dict[RunKey, int]:
    """Record the attempts and return the new `seq` of their runs.

    Omit a run whose fencing token is no longer valid.
    """
    ordered = in_key_order(completions)
    return _seqs(ordered, await connection.fetch(STATEMENTS.complete, *_parameters(ordered)))


async def complete_free(
    pool: asyncpg.Pool, completions: Sequence[AttemptCompletion]
) -> dict[RunKey, int]:
    """Do the same as `complete`, and omit a run whose row another transaction has locked."""
    ordered = in_key_order(completions)
    parameters = _parameters(ordered)
    rows = await fetch_on_day(pool, STATEMENTS.complete_free, *parameters, rows=ordered)
    return _seqs(ordered, rows)


def _parameters(ordered: Sequence[AttemptCompletion]) -> list[Any]:
    return [
        *key_arrays(each.key for each in ordered),
        [each.token for each in ordered],
        [each.state.value for each in ordered],
        nullable_array(each.reason for each in ordered),
        [each.outcome for each in ordered],
        nullable_array(each.started_at for each in ordered),
        [each.finished_at for each in ordered],
        nullable_array(each.next_attempt_at for each in ordered),
        nullable_array(each.staged_at for each in ordered),
        nullable_array(each.error_code for each in ordered),
        nullable_array(each.error for each in ordered),
        nullable_array(each.http_status for each in ordered),
        nullable_array(each.duration_ms for each in ordered),
        nullable_array(each.result for each in ordered),
        nullable_array(each.is_failed_probe or None for each in ordered),
        nullable_array(each.trace for each in ordered),
    ]


def _seqs(
    ordered: Sequence[AttemptCompletion], rows: Sequence[asyncpg.Record]
) -> dict[RunKey, int]:
    return {ordered[row["k"] - 1].key: row["seq"] for row in rows}


async def find_stop_requests(
    connection: asyncpg.Connection, completions: Sequence[AttemptCompletion]
) -> dict[RunKey, str]:
    """Return the reason of the stop request by run, for the runs whose token is still valid.

    Lock the rows, so that no further stop request arrives before the completion.
    """
    ordered = in_key_order(completions)
    keys = key_arrays(each.key for each in ordered)
    tokens = [each.token for each in ordered]
    rows = await connection.fetch(STATEMENTS.find_stop_requests, *keys, tokens)
    return {
        ordered[row["k"] - 1].key: row["stop_reason"]
        for row in rows
        if row["stop_reason"] is not None
    }


async def find_recorded(
    pool: asyncpg.Pool, completions: Sequence[AttemptCompletion]
) -> set[RunKey]:
    """Return the runs whose completion is recorded, after a commit in doubt."""
    rows = await pool.fetch(
        STATEMENTS.find_recorded,
        *key_arrays(each.key for each in completions),
        [each.finished_at for each in completions],
        [each.outcome for each in completions],
    )
    return {completions[row["k"] - 1].key for row in rows}


async def attempt_history(connection: asyncpg.Connection, key: RunKey) -> list[AttemptRecord]:
    """Return the attempts of a run in their order."""
    rows = await connection.fetch(STATEMENTS.attempt_history, key.scheduled_for, key.schedule_id)
    return [AttemptRecord.model_validate(dict(row)) for row in rows]
