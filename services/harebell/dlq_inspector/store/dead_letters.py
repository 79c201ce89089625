"""The desk's SQL: keeping letters, and moving them and their runs."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.dead_letter import DeadLetter, DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState, LockedDeadLetter
from harebell.dlq_inspector.store import groups

_KEEP: Final = """
INSERT INTO dead_letters (id, tenant, kind, reason, error_code, error, dead_at, payload, body,
    scheduled_for, schedule_id, replay_number, key, attempts, root_id, group_id, state)
SELECT letter.*, 'open'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::timestamptz[], $8::jsonb[], $9::bytea[], $10::timestamptz[], $11::uuid[], $12::integer[],
    $13::text[], $14::integer[], $15::uuid[], $16::uuid[]) AS letter
ON CONFLICT (id) DO NOTHING
RETURNING id
"""
_LOCK: Final = """
SELECT letter.id, letter.kind, letter.state, letter.scheduled_for, letter.schedule_id,
    letter.replay_number, letter.target::text AS target, run.override::text AS override, coalesce(
        run.state = 'staged' AND run.attempt = 0 AND run.replay_number = letter.replay_number + 1, false
    ) AS unstarted
FROM dead_letters AS letter
LEFT JOIN runs AS run
    ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
WHERE letter.id = ANY($2::uuid[]) AND letter.tenant = $1
ORDER BY letter.id
FOR UPDATE OF letter
"""
# A person asks for it now: what expired, or was asked to stop, in an earlier series is over.
_BEGIN_SERIES: Final = """
WITH owed AS (
    SELECT letter.id, letter.override, run.scheduled_for, run.schedule_id
    FROM unnest($2::uuid[], $3::timestamptz[], $4::uuid[], $5::integer[], $7::text[])
        AS letter (id, scheduled_for, schedule_id, replay_number, override)
    JOIN runs AS run
        ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
    WHERE run.state = 'dead' AND run.replay_number = letter.replay_number AND run.tenant = $1
    ORDER BY run.scheduled_for, run.schedule_id
    FOR UPDATE OF run
)
UPDATE runs AS run
SET state = 'staged', seq = run.seq + 1, replay_number = run.replay_number + 1, attempt = 0,
    reason = NULL, outcome = NULL, expires_at = NULL, next_attempt_at = now(),
    lease_holder = NULL, lease_until = NULL, lease_seconds = NULL, stop_requested_at = NULL,
    pool = coalesce($6, run.pool), override = owed.override::json,
    started_at = NULL, finished_at = NULL, staged_at = now()
FROM owed
WHERE run.scheduled_for = owed.scheduled_for AND run.schedule_id = owed.schedule_id
RETURNING owed.id
"""
_RECORD: Final = """
WITH replayed AS (
    UPDATE dead_letters SET state = 'replayed' WHERE id = ANY($1::uuid[]) RETURNING id, replay_number
)
INSERT INTO replays (dead_letter_id, replay_number, actor, note, replayed_at)
SELECT id, replay_number + 1, $2, $3, now() FROM replayed
"""
COUNTED: Final = 10_000  # open letters; more are as alarming
_COUNT_OPEN: Final = f"""  # noqa: S608  # constants only
WITH away AS (SELECT id FROM failure_groups WHERE {groups.SHOWN_STATE} <> 'open')
SELECT count(*) FROM (
    SELECT FROM dead_letters WHERE state = 'open'
        AND (group_id IS NULL OR group_id NOT IN (SELECT id FROM away))
    LIMIT $1
) AS open
"""
_DROP: Final = """
UPDATE dead_letters SET state = 'discarded', discarded_at = now(), discarded_by = $2, discard_note = $3
WHERE id = ANY($1::uuid[])
"""
# Before their runs, as a ticker locks them.
_LOCK_SCHEDULES: Final = """
SELECT schedule_id FROM schedule_state WHERE schedule_id = ANY($1::uuid[])
ORDER BY schedule_id FOR UPDATE
"""
# Whoever cancels the schedule finds them there.
_REOPEN: Final = """
UPDATE schedule_state AS state
SET open_runs = state.open_runs || ARRAY(
    SELECT instant FROM unnest(begun.instants) AS instant WHERE instant <> ALL (state.open_runs)
)
FROM (
    SELECT schedule_id, array_agg(scheduled_for) AS instants
    FROM unnest($1::uuid[], $2::timestamptz[]) AS run (schedule_id, scheduled_for)
    GROUP BY schedule_id
) AS begun
WHERE state.schedule_id = begun.schedule_id
"""


async def insert_dead_letters(
    connection: asyncpg.Connection, letters: Iterable[DeadLetter]
) -> list[DeadLetter]:
    """Those that were new."""
    # in order of their ids, or two inspectors with the same letters could wait for each other
    by_id = {letter.id: letter for letter in sorted(letters, key=lambda letter: letter.id)}
    columns = map(list, zip(*map(_row, by_id.values()), strict=True))
    async with connection.transaction():
        rows = await connection.fetch(_KEEP, *columns)
        kept = [by_id[row["id"]] for row in rows]
        await groups.record_failures(
            connection, [(letter.fingerprint, letter.dead_at) for letter in kept]
        )
    return kept


def _row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        letter.id,
        letter.tenant,
        letter.kind.value,
        letter.reason,
        letter.error_code,
        letter.error,
        letter.dead_at,
        orjson.dumps(letter.payload).decode(),
        letter.body,
        letter.run and letter.run.scheduled_for,
        letter.run and letter.run.schedule_id,
        letter.replay_number,
        letter.key,
        letter.attempts,
        letter.root_id,
        letter.fingerprint.group,
    )


async def lock_dead_letters(
    connection: asyncpg.Connection, tenant: str, ids: Iterable[UUID]
) -> dict[UUID, LockedDeadLetter]:
    """Those of them that are the tenant's, for nobody else to move in this transaction."""
    rows = await connection.fetch(_LOCK, tenant, list(ids))
    return {row["id"]: _held(row) for row in rows}


def _held(row: asyncpg.Record) -> LockedDeadLetter:
    is_run = row["schedule_id"] is not None
    return LockedDeadLetter(
        id=row["id"],
        kind=DeadLetterKind(row["kind"]),
        state=DeadLetterState(row["state"]),
        run=RunKey(row["scheduled_for"], row["schedule_id"]) if is_run else None,
        replay_number=row["replay_number"],
        unstarted=row["unstarted"],
        target=row["target"],
        override=row["override"],
    )


async def stage_replays(
    connection: asyncpg.Connection,
    tenant: str,
    letters: Sequence[LockedDeadLetter],
    *,
    pool: str | None = None,
) -> frozenset[UUID]:
    """Stage the dead run of each again; the letters whose run was dead in their series.

    `pool`: in place of the run's own.
    """
    runs = {letter.id: letter.run for letter in letters if letter.run is not None}
    await connection.execute(_LOCK_SCHEDULES, [run.schedule_id for run in runs.values()])
    rows = await connection.fetch(
        _BEGIN_SERIES,
        tenant,
        [letter.id for letter in letters],
        [letter.run and letter.run.scheduled_for for letter in letters],
        [letter.run and letter.run.schedule_id for letter in letters],
        [letter.replay_number for letter in letters],
        pool,
        [letter.next_override for letter in letters],
    )
    begun = frozenset(row["id"] for row in rows)
    open_runs = [run for id_, run in runs.items() if id_ in begun]
    await connection.execute(
        _REOPEN, [run.schedule_id for run in open_runs], [run.scheduled_for for run in open_runs]
    )
    return begun


async def record_replays(
    connection: asyncpg.Connection, ids: Iterable[UUID], *, actor: str | None, note: str | None
) -> None:
    await connection.execute(_RECORD, list(ids), actor, note)


async def discard(
    connection: asyncpg.Connection, ids: Iterable[UUID], *, actor: str | None, note: str | None
) -> None:
    await connection.execute(_DROP, list(ids), actor, note)


async def count_open(pool: asyncpg.Pool) -> int:
    """At most `COUNTED`; those of groups that are muted or archived wait for nobody."""
    number: int = await pool.fetchval(_COUNT_OPEN, COUNTED)
    return number
