"""What a ticker does to the ledger: runs come to be, are cancelled, take a new version."""

from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.run_states import (
    NewRun,
    Placement,
    Reason,
    RunState,
    SkippedRange,
    unstaged_state,
)
from harebell.storage.runs import in_key_order, key_arrays, nullable_array

# One instant of one schedule is one run: what was only withdrawn may be owed again, and
# may then be skipped. A range whose first instant had such a row would else go unrecorded.
_STAGE: Final = """
INSERT INTO runs AS r (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority,
                       origin, due_at, expires_at, override, state, staged_at)
SELECT t.*, 'staged', now()
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::text[],
            $7::text[], $8::smallint[], $9::text[], $10::timestamptz[], $11::timestamptz[],
            $12::json[]) AS t
ON CONFLICT (scheduled_for, schedule_id) DO UPDATE SET
    state = 'staged', version = excluded.version, seq = r.seq + 1, reason = NULL,
    outcome = NULL, pool = excluded.pool, lane = excluded.lane, priority = excluded.priority,
    due_at = excluded.due_at, expires_at = excluded.expires_at, staged_at = excluded.staged_at,
    finished_at = NULL, stop_requested_at = NULL
WHERE r.state = 'cancelled' AND r.attempt = 0 AND r.reason IN ('superseded', 'paused', 'cancelled')
RETURNING scheduled_for, schedule_id, seq
"""
_SKIP: Final = """
INSERT INTO runs AS r (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority,
                       state, reason, due_at, finished_at, outcome, range_until, range_count)
SELECT t.scheduled_for, t.schedule_id, t.tenant, t.version, 1, t.pool, t.lane, t.priority,
       'skipped', t.reason, t.scheduled_for, now(), 'skipped', t.range_until, t.range_count
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[],
            $7::smallint[], $8::text[], $9::timestamptz[], $10::int[])
     AS t(scheduled_for, schedule_id, tenant, version, pool, lane, priority, reason,
          range_until, range_count)
ON CONFLICT (scheduled_for, schedule_id) DO UPDATE SET
    state = 'skipped', version = excluded.version, seq = r.seq + 1, reason = excluded.reason,
    outcome = 'skipped', finished_at = excluded.finished_at,
    range_until = excluded.range_until, range_count = excluded.range_count
WHERE r.state = 'cancelled' AND r.attempt = 0 AND r.reason IN ('superseded', 'paused', 'cancelled')
"""
_CANCEL: Final = """
UPDATE runs r SET state = t.state, reason = t.reason, seq = r.seq + 1, outcome = t.state,
                  finished_at = now(), next_attempt_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::text[])
     AS t(scheduled_for, schedule_id, reason, state)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') THEN true ELSE false END
"""
_RENEW: Final = """
UPDATE runs r SET version = t.version, seq = r.seq + 1, pool = t.pool, lane = t.lane,
                  priority = t.priority, staged_at = now(),
                  expires_at = CASE WHEN r.origin = 'backfill' THEN NULL ELSE t.expires_at END
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::smallint[],
            $7::timestamptz[])
     AS t(scheduled_for, schedule_id, version, pool, lane, priority, expires_at)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'staged' AND r.attempt = 0 THEN true ELSE false END
"""
_RESOLVE: Final = """
UPDATE runs r SET state = t.state, seq = r.seq + 1, outcome = nullif(t.state, 'staged'),
                  reason = CASE WHEN t.state = 'staged' THEN NULL ELSE 'manual' END,
                  replay_number = CASE WHEN t.state = 'staged' THEN r.replay_number + 1 ELSE r.replay_number END,
                  attempt = CASE WHEN t.state = 'staged' THEN 0 ELSE r.attempt END,
                  finished_at = CASE WHEN t.state = 'staged' THEN NULL ELSE r.finished_at END,
                  next_attempt_at = CASE WHEN t.state = 'staged' THEN now() END,
                  staged_at = CASE WHEN t.state = 'staged' THEN now() ELSE r.staged_at END,
                  lease_holder = NULL, expires_at = NULL, started_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[]) AS t(scheduled_for, schedule_id, state)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'unresolved' THEN true ELSE false END
"""
_REQUEST_STOP: Final = """
UPDATE runs r SET stop_requested_at = CASE WHEN t.reason IS NULL THEN NULL ELSE now() END,
                  reason = t.reason
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[]) AS t(scheduled_for, schedule_id, reason)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'running' THEN true ELSE false END
"""


async def stage(connection: asyncpg.Connection, runs: Sequence[NewRun]) -> dict[RunKey, int]:
    """The seq of every run that came to be, or came back; what was there already is left out."""
    ordered = in_key_order(runs)
    rows = await connection.fetch(
        _STAGE,
        *key_arrays(run.key for run in ordered),
        [run.placement.tenant for run in ordered],
        [run.placement.version for run in ordered],
        [1] * len(ordered),
        *_places([run.placement for run in ordered]),
        nullable_array(run.origin for run in ordered),
        [run.due_at for run in ordered],
        nullable_array(run.expires_at for run in ordered),
        nullable_array(run.override for run in ordered),
    )
    return {RunKey(row["scheduled_for"], row["schedule_id"]): row["seq"] for row in rows}


async def skip(connection: asyncpg.Connection, ranges: Sequence[SkippedRange]) -> None:
    if not ranges:
        return
    ordered = in_key_order(ranges)
    await connection.execute(
        _SKIP,
        *key_arrays(each.key for each in ordered),
        [each.placement.tenant for each in ordered],
        [each.placement.version for each in ordered],
        *_places([each.placement for each in ordered]),
        [each.reason.value for each in ordered],
        [each.until for each in ordered],
        [each.count for each in ordered],
    )


async def cancel(connection: asyncpg.Connection, reasons: Mapping[RunKey, Reason]) -> None:
    """Rows that the caller holds locked and knows to be staged or retrying."""
    if reasons:
        ordered = sorted(reasons)
        texts = [reasons[key].value for key in ordered]
        states = [unstaged_state(reasons[key]).value for key in ordered]
        await connection.execute(_CANCEL, *key_arrays(ordered), texts, states)


async def move_to_version(connection: asyncpg.Connection, runs: Sequence[NewRun]) -> None:
    """Staged runs take another version and expire as it says; their tickets must be made again."""
    if runs:
        ordered = in_key_order(runs)
        await connection.execute(
            _RENEW,
            *key_arrays(run.key for run in ordered),
            [run.placement.version for run in ordered],
            *_places([run.placement for run in ordered]),
            nullable_array(run.expires_at for run in ordered),
        )


async def request_stop(
    connection: asyncpg.Connection, reasons: Mapping[RunKey, Reason | None]
) -> None:
    """Executors learn of it at the next renewal, if not sooner. None takes a request back."""
    if reasons:
        ordered = sorted(reasons)
        await connection.execute(_REQUEST_STOP, *key_arrays(ordered), [reasons[k] for k in ordered])


def _places(places: Sequence[Placement]) -> tuple[list[str], list[str], list[int]]:
    return (
        [place.pool for place in places],
        [place.lane for place in places],
        [place.priority for place in places],
    )


async def resolve(connection: asyncpg.Connection, states: Mapping[RunKey, RunState]) -> None:
    """Held rows become what a person said; `staged` is a new series, whose ticket must be made."""
    if states:
        ordered = sorted(states)
        texts = [states[key].value for key in ordered]
        await connection.execute(_RESOLVE, *key_arrays(ordered), texts)
