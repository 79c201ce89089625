"""Staging in the ledger: new runs, skipped ranges, changes of staged runs, rebuilt tickets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

import asyncpg

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted
from harebell.contract.ticket import RunSpec, Ticket
from harebell.domain.run_states import (
    RESTAGEABLE,
    Actor,
    NewRun,
    Placement,
    Reason,
    RunState,
    SkippedRange,
    unstaged_state,
)
from harebell.storage.runs import before, in_key_order, key_arrays, nullable_array, sql_list


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    stage: str
    skip: str
    cancel: str
    move_to_version: str
    request_stop: str
    resolve: str
    rebuild: str


STATEMENTS: Final = StagingStatements(
    # One scheduled time of one schedule is one run, so an unstaged row is staged again.
    stage=f"""
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
    finished_at = NULL, stop_requested_at = NULL,
    override = coalesce(excluded.override, r.override)
WHERE r.state {before(Actor.RESTAGE, RunState.STAGED)}
  AND r.attempt = 0 AND r.reason {sql_list(RESTAGEABLE)}
RETURNING scheduled_for, schedule_id, seq
""",
    # The first time of a range can have an unstaged row. Without the update, the range would have
    # no record.
    skip=f"""
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
WHERE r.state {before(Actor.RESTAGE, RunState.SKIPPED)}
  AND r.attempt = 0 AND r.reason {sql_list(RESTAGEABLE)}
""",
    cancel=f"""
UPDATE runs r SET state = t.state, reason = t.reason, seq = r.seq + 1, outcome = t.state,
                  finished_at = now(), next_attempt_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::text[])
     AS t(scheduled_for, schedule_id, reason, state)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state {before(Actor.TICKER, RunState.CANCELLED)} THEN true ELSE false END
""",
    # A new due time releases a run that a blackout holds back. If a blackout still lasts, the
    # executor holds the run back again.
    move_to_version=f"""
UPDATE runs r SET version = t.version, seq = r.seq + 1, pool = t.pool, lane = t.lane,
                  priority = t.priority, staged_at = now(),
                  expires_at = CASE WHEN r.origin = 'backfill' THEN NULL ELSE t.expires_at END,
                  due_at = coalesce(t.due_at, r.due_at),
                  next_attempt_at = CASE WHEN t.due_at IS NULL OR r.reason IS DISTINCT FROM
                                              'blackout' THEN r.next_attempt_at END,
                  reason = CASE WHEN t.due_at IS NULL OR r.reason IS DISTINCT FROM 'blackout'
                                THEN r.reason END
FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::smallint[],
            $7::timestamptz[], $8::timestamptz[])
     AS t(scheduled_for, schedule_id, version, pool, lane, priority, expires_at, due_at)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state {before(Actor.TICKER, RunState.STAGED)} AND r.attempt = 0
           THEN true ELSE false END
""",
    request_stop="""
UPDATE runs r SET stop_requested_at = CASE WHEN t.reason IS NULL THEN NULL ELSE now() END,
                  reason = t.reason
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[]) AS t(scheduled_for, schedule_id, reason)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'running' THEN true ELSE false END
""",
    resolve=f"""
UPDATE runs r SET state = t.state, seq = r.seq + 1, outcome = nullif(t.state, 'staged'),
                  reason = CASE WHEN t.state = 'staged' THEN NULL ELSE 'manual' END,
                  replay_number = r.replay_number + CASE WHEN t.state = 'staged' THEN 1 ELSE 0 END,
                  attempt = CASE WHEN t.state = 'staged' THEN 0 ELSE r.attempt END,
                  failed_probes = CASE WHEN t.state <> 'staged' THEN r.failed_probes END,
                  finished_at = CASE WHEN t.state = 'staged' THEN NULL ELSE r.finished_at END,
                  next_attempt_at = CASE WHEN t.state = 'staged' THEN now() END,
                  staged_at = CASE WHEN t.state = 'staged' THEN now() ELSE r.staged_at END,
                  lease_holder = NULL, expires_at = NULL, started_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[]) AS t(scheduled_for, schedule_id, state)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state {before(Actor.RESOLVE, RunState.STAGED)} THEN true ELSE false END
""",
    # Only a run with an attempt has a previous attempt, so most runs need no search for one.
    rebuild="""
SELECT run.scheduled_for, run.schedule_id, coalesce(run.next_attempt_at, run.due_at) AS due_at,
    run.expires_at, run.seq, run.version, run.replay_number, run.pool, run.lane, run.priority,
    run.override, run.reason, version.run_spec,
    CASE WHEN run.attempt > 0 OR run.replay_number > 0 THEN (
        SELECT attempt.trace FROM attempts AS attempt
        WHERE attempt.scheduled_for = run.scheduled_for AND attempt.schedule_id = run.schedule_id
        ORDER BY attempt.replay_number DESC, attempt.number DESC LIMIT 1
    ) END AS previous_trace
FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY
    AS requested (scheduled_for, schedule_id, k)
JOIN runs AS run
    ON run.scheduled_for = requested.scheduled_for AND run.schedule_id = requested.schedule_id
JOIN schedule_versions AS version
    ON version.schedule_id = run.schedule_id AND version.version = run.version
ORDER BY requested.k
""",
)


async def stage(connection: asyncpg.Connection, runs: Sequence[NewRun]) -> dict[RunKey, int]:
    """Insert the runs, stage unstaged runs again, and return the `seq` of each staged run.

    Omit a run whose row exists in another state.
    """
    ordered = in_key_order(runs)
    rows = await connection.fetch(
        STATEMENTS.stage,
        *key_arrays(run.key for run in ordered),
        [run.placement.tenant for run in ordered],
        [run.placement.version for run in ordered],
        [1] * len(ordered),
        *_placement_arrays([run.placement for run in ordered]),
        nullable_array(run.origin for run in ordered),
        [run.due_at for run in ordered],
        nullable_array(run.expires_at for run in ordered),
        nullable_array(run.override for run in ordered),
    )
    return {RunKey(row["scheduled_for"], row["schedule_id"]): row["seq"] for row in rows}


async def skip(connection: asyncpg.Connection, ranges: Sequence[SkippedRange]) -> None:
    """Insert one row for each range, unless its first scheduled time has a run."""
    if not ranges:
        return
    ordered = in_key_order(ranges)
    await connection.execute(
        STATEMENTS.skip,
        *key_arrays(each.key for each in ordered),
        [each.placement.tenant for each in ordered],
        [each.placement.version for each in ordered],
        *_placement_arrays([each.placement for each in ordered]),
        [each.reason.value for each in ordered],
        [each.until for each in ordered],
        [each.count for each in ordered],
    )


async def cancel(connection: asyncpg.Connection, reasons: Mapping[RunKey, Reason]) -> None:
    """Unstage runs whose rows the caller has locked in the state `staged` or `retrying`."""
    if reasons:
        ordered = sorted(reasons)
        texts = [reasons[key].value for key in ordered]
        states = [unstaged_state(reasons[key]).value for key in ordered]
        await connection.execute(STATEMENTS.cancel, *key_arrays(ordered), texts, states)


async def move_to_version(
    connection: asyncpg.Connection,
    runs: Sequence[NewRun],
    due_times: Mapping[RunKey, datetime] = MappingProxyType({}),
) -> None:
    """Move staged runs to another version with its expiry. The caller rebuilds their tickets.

    A run in `due_times` gets that due time, and no blackout holds it back any longer.
    """
    if runs:
        ordered = in_key_order(runs)
        await connection.execute(
            STATEMENTS.move_to_version,
            *key_arrays(run.key for run in ordered),
            [run.placement.version for run in ordered],
            *_placement_arrays([run.placement for run in ordered]),
            nullable_array(run.expires_at for run in ordered),
            nullable_array(due_times.get(run.key) for run in ordered),
        )


async def request_stop(
    connection: asyncpg.Connection, reasons: Mapping[RunKey, Reason | None]
) -> None:
    """Request the executors to stop running runs, or withdraw the request with the reason None.

    An executor finds the request at its next lease renewal at the latest.
    """
    if reasons:
        ordered = sorted(reasons)
        values = [reasons[key] for key in ordered]
        await connection.execute(STATEMENTS.request_stop, *key_arrays(ordered), values)


async def resolve(connection: asyncpg.Connection, states: Mapping[RunKey, RunState]) -> None:
    """Move unresolved runs to the states that a person chose.

    The state `staged` increases the replay number, and the caller rebuilds the ticket.
    """
    if states:
        ordered = sorted(states)
        texts = [states[key].value for key in ordered]
        await connection.execute(STATEMENTS.resolve, *key_arrays(ordered), texts)


def _placement_arrays(
    placements: Sequence[Placement],
) -> tuple[list[str], list[str], list[int]]:
    return (
        [placement.pool for placement in placements],
        [placement.lane for placement in placements],
        [placement.priority for placement in placements],
    )


async def rebuild_tickets(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> list[Ticket]:
    """Return the tickets with the present `seq` of their rows, in the order of the keys.

    Omit a key without a row.
    The function reads rows in every state, because the caller has locked the rows to publish.
    """
    if not keys:
        return []
    rows = await connection.fetch(
        STATEMENTS.rebuild, [key.scheduled_for for key in keys], [key.schedule_id for key in keys]
    )
    return [_ticket(row) for row in rows]


def _ticket(row: asyncpg.Record) -> Ticket:
    override = None if row["override"] is None else decode_trusted(row["override"].encode())
    return Ticket(
        schedule_id=row["schedule_id"],
        scheduled_for=row["scheduled_for"],
        due_at=row["due_at"],
        expires_at=row["expires_at"],
        seq=row["seq"],
        version=row["version"],
        replay_number=row["replay_number"],
        pool=row["pool"],
        lane=Lane(row["lane"]),
        priority=row["priority"],
        override=override,
        previous_trace=row["previous_trace"],
        reserved=True if row["reason"] == Reason.RATE_LIMITED else None,
        run_spec=RunSpec.model_validate_json(row["run_spec"]).with_override(override),
    )
