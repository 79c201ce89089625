"""Dead letters: their insertion, their lock, and the statements that change them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import Select, func, literal_column, select

from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted
from harebell.dlq_inspector.model.dead_letter import DeadLetter, DeadLetterKind
from harebell.dlq_inspector.model.imports import KnownRun
from harebell.dlq_inspector.model.results import DeadLetterState, LockedDeadLetter
from harebell.dlq_inspector.store import groups
from harebell.domain.run_states import RunState
from harebell.storage.engine import compile_statement
from harebell.storage.tables import dead_letters

MAX_COUNTED: Final = 10_000  # open dead letters of the metric; a larger number is as alarming


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    insert_dead_letters: str
    lock_dead_letters: str
    reopen_messages: str
    find_messages: str
    record_replays: str
    discard: str
    insert_edited_copy: str
    find_target: str
    supersede: str
    find_runs: str
    find_present: str


STATEMENTS: Final = DeadLetterStatements(
    # An older version may have stored the same dead letter with an id that does not contain the
    # tenant. Only such an id can belong to another tenant.
    insert_dead_letters="""
WITH incoming AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
        $7::timestamptz[], $8::jsonb[], $9::bytea[], $10::timestamptz[], $11::uuid[],
        $12::integer[], $13::text[], $14::integer[], $15::uuid[], $16::uuid[], $17::boolean[],
        $18::uuid[], $19::uuid[])
    AS dead_letter (id, tenant, kind, reason, error_code, error, dead_at, payload, body,
        scheduled_for, schedule_id, replay_number, key, attempts, root_id, group_id, is_imported,
        older_id, older_root_id)
), inserted AS (
    INSERT INTO dead_letters (id, tenant, kind, reason, error_code, error, dead_at, payload, body,
        scheduled_for, schedule_id, replay_number, key, attempts, root_id, group_id, is_imported,
        state)
    SELECT id, tenant, kind, reason, error_code, error, dead_at, payload, body, scheduled_for,
        schedule_id, replay_number, key, attempts, coalesce((
            SELECT root.id FROM dead_letters AS root
            WHERE root.tenant = incoming.tenant AND root.id = incoming.older_root_id
        ), root_id), group_id, is_imported, 'open'
    FROM incoming
    WHERE NOT EXISTS (
        SELECT FROM dead_letters AS older
        WHERE older.tenant = incoming.tenant AND older.id = incoming.older_id
    )
    ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT incoming.id, inserted.id IS NOT NULL AS is_new, EXISTS (
    SELECT FROM dead_letters AS other
    WHERE other.id IN (incoming.id, incoming.older_id) AND other.tenant <> incoming.tenant
) AS conflicts
FROM incoming LEFT JOIN inserted ON inserted.id = incoming.id
""",
    lock_dead_letters="""
SELECT dead_letter.id, dead_letter.kind, dead_letter.state, run.scheduled_for,
    run.schedule_id, dead_letter.replay_number, dead_letter.target::text AS target,
    run.override::text AS override, coalesce(
        run.state = 'staged' AND run.attempt = 0
        AND run.replay_number = dead_letter.replay_number + 1, false
    ) AS is_unstarted
FROM dead_letters AS dead_letter
LEFT JOIN runs AS run ON run.tenant = dead_letter.tenant
    AND run.scheduled_for = dead_letter.scheduled_for
    AND run.schedule_id = dead_letter.schedule_id
WHERE dead_letter.id = ANY($2::uuid[]) AND dead_letter.tenant = $1
ORDER BY dead_letter.id
FOR UPDATE OF dead_letter
""",
    record_replays="""
WITH replayed AS (
    UPDATE dead_letters SET state = 'replayed' WHERE tenant = $1 AND id = ANY($2::uuid[])
    RETURNING id, replay_number
)
INSERT INTO replays (dead_letter_id, replay_number, actor, note, replayed_at)
SELECT id, coalesce(replay_number, 0) + 1, $3, $4, now() FROM replayed
ON CONFLICT (dead_letter_id) DO UPDATE SET replay_number = replays.replay_number + 1,
    actor = excluded.actor, note = excluded.note, replayed_at = excluded.replayed_at
""",
    # A replayed command that dies again has the same id. A repeat of its first death is not later.
    reopen_messages="""
UPDATE dead_letters AS known SET state = 'open', dead_at = again.dead_at
FROM unnest($1::text[], $2::uuid[], $3::timestamptz[]) AS again (tenant, id, dead_at)
WHERE known.tenant = again.tenant AND known.id = again.id AND known.state = 'replayed'
    AND known.dead_at < again.dead_at
RETURNING known.id
""",
    find_messages="""
SELECT id, payload::text AS payload, body FROM dead_letters
WHERE tenant = $1 AND id = ANY($2::uuid[])
ORDER BY dead_at, id
""",
    discard="""
UPDATE dead_letters
SET state = 'discarded', discarded_at = now(), discarded_by = $3, discard_note = $4
WHERE tenant = $1 AND id = ANY($2::uuid[])
""",
    # The copy has the new target without literal secrets in its payload. Its replay reads the
    # column `target`. The payload of the original does not change.
    insert_edited_copy="""
INSERT INTO dead_letters (id, tenant, kind, schedule_id, scheduled_for, replay_number, key, reason,
    error_code, error, attempts, dead_at, state, payload, root_id, group_id,
    is_imported, target, edited_from, edited_at, edited_by, edit_note)
SELECT $3, tenant, kind, schedule_id, scheduled_for, replay_number, key, reason,
    error_code, error, attempts, dead_at, 'open', jsonb_set(payload, '{target}', $5::text::jsonb),
    root_id, group_id, is_imported, $4::text::json, id, now(), $6, $7
FROM dead_letters WHERE tenant = $1 AND id = $2
""",
    find_target="""
SELECT coalesce(dead_letter.target, run.override -> 'target', version.run_spec -> 'target')::text
FROM dead_letters AS dead_letter
LEFT JOIN runs AS run ON run.scheduled_for = dead_letter.scheduled_for
    AND run.schedule_id = dead_letter.schedule_id AND run.tenant = dead_letter.tenant
LEFT JOIN schedule_versions AS version
    ON version.schedule_id = run.schedule_id AND version.version = run.version
WHERE dead_letter.id = $2 AND dead_letter.tenant = $1
""",
    supersede="UPDATE dead_letters SET state = 'superseded' WHERE tenant = $1 AND id = $2",
    find_runs="""
SELECT run.scheduled_for, run.schedule_id, run.replay_number, run.state, run.tenant = $1 AS is_own
FROM runs AS run
JOIN unnest($2::timestamptz[], $3::uuid[]) AS wanted (scheduled_for, schedule_id)
    ON wanted.scheduled_for = run.scheduled_for AND wanted.schedule_id = run.schedule_id
""",
    find_present="SELECT id FROM dead_letters WHERE tenant = $1 AND id = ANY($2::uuid[])",
)


@dataclass(frozen=True, slots=True)
class Insertion:
    """The dead letters that were new or reopened, and those whose id another tenant has taken."""

    new: list[DeadLetter]
    conflicts: list[DeadLetter]


async def insert_dead_letters(
    connection: asyncpg.Connection, incoming: Iterable[DeadLetter]
) -> Insertion:
    """Insert the dead letters and record their failure groups."""
    # in the order of ids, or two dlq_inspectors with the same dead letters could deadlock
    by_id = {each.id: each for each in sorted(incoming, key=lambda each: each.id)}
    if not by_id:
        return Insertion([], [])
    columns = map(list, zip(*map(_row, by_id.values()), strict=True))
    async with connection.transaction():
        rows = await connection.fetch(STATEMENTS.insert_dead_letters, *columns)
        new = [by_id[row["id"]] for row in rows if row["is_new"]]
        known = [by_id[row["id"]] for row in rows if not row["is_new"]]
        new += await _reopen_messages(connection, known)
        await groups.record_failures(connection, [(each.fingerprint, each.dead_at) for each in new])
    return Insertion(new, [by_id[row["id"]] for row in rows if row["conflicts"]])


async def _reopen_messages(
    connection: asyncpg.Connection, known: Sequence[DeadLetter]
) -> list[DeadLetter]:
    """Open the messages that died again after their replay, and return them."""
    died = {
        each.id: each
        for each in known
        if each.kind is DeadLetterKind.MESSAGE and not each.is_imported
    }
    if not died:
        return []
    rows = await connection.fetch(
        STATEMENTS.reopen_messages,
        [each.tenant for each in died.values()],
        list(died),
        [each.dead_at for each in died.values()],
    )
    return [died[row["id"]] for row in rows]


async def find_messages(
    connection: asyncpg.Connection, tenant: str, ids: Iterable[UUID]
) -> list[tuple[UUID, Mapping[str, Any], bytes]]:
    """Return the payload and the body of stored messages, in the order of their deaths."""
    rows = await connection.fetch(STATEMENTS.find_messages, tenant, list(ids))
    return [
        (row["id"], decode_trusted(row["payload"].encode()), row["body"] or b"") for row in rows
    ]


def _row(dead_letter: DeadLetter) -> tuple[object, ...]:
    return (
        dead_letter.id,
        dead_letter.tenant,
        dead_letter.kind.value,
        dead_letter.reason,
        dead_letter.error_code,
        dead_letter.error,
        dead_letter.dead_at,
        orjson.dumps(dead_letter.payload).decode(),
        dead_letter.body,
        dead_letter.run and dead_letter.run.scheduled_for,
        dead_letter.run and dead_letter.run.schedule_id,
        dead_letter.replay_number,
        dead_letter.key,
        dead_letter.attempts,
        dead_letter.root_id,
        dead_letter.fingerprint.group_id,
        dead_letter.is_imported,
        dead_letter.older_id,
        dead_letter.older_root_id,
    )


async def find_runs(
    connection: asyncpg.Connection, tenant: str, runs: Sequence[RunKey]
) -> dict[RunKey, KnownRun]:
    """Return the given runs that the ledger contains, of any tenant."""
    times, schedules = [run.scheduled_for for run in runs], [run.schedule_id for run in runs]
    rows = await connection.fetch(STATEMENTS.find_runs, tenant, times, schedules)
    return {
        RunKey(row["scheduled_for"], row["schedule_id"]): KnownRun(
            is_own=row["is_own"],
            is_dead=row["state"] == RunState.DEAD,
            replay_number=row["replay_number"],
        )
        for row in rows
    }


async def find_present(
    connection: asyncpg.Connection, tenant: str, ids: Iterable[UUID]
) -> frozenset[UUID]:
    """Return the given ids that dead letters of the tenant have."""
    rows = await connection.fetch(STATEMENTS.find_present, tenant, list(ids))
    return frozenset(row["id"] for row in rows)


async def lock_dead_letters(
    connection: asyncpg.Connection, tenant: str, ids: Iterable[UUID]
) -> dict[UUID, LockedDeadLetter]:
    """Lock the dead letters of the tenant until the end of the transaction. Omit other ids."""
    rows = await connection.fetch(STATEMENTS.lock_dead_letters, tenant, list(ids))
    return {row["id"]: _locked(row) for row in rows}


def _locked(row: asyncpg.Record) -> LockedDeadLetter:
    is_run = row["schedule_id"] is not None
    return LockedDeadLetter(
        id=row["id"],
        kind=DeadLetterKind(row["kind"]),
        state=DeadLetterState(row["state"]),
        run=RunKey(row["scheduled_for"], row["schedule_id"]) if is_run else None,
        replay_number=row["replay_number"],
        is_unstarted=row["is_unstarted"],
        target=row["target"],
        override=row["override"],
    )


async def record_replays(
    connection: asyncpg.Connection,
    tenant: str,
    ids: Iterable[UUID],
    *,
    actor: str | None,
    note: str | None,
) -> None:
    """Move the dead letters to `replayed` and record who replayed them."""
    await connection.execute(STATEMENTS.record_replays, tenant, list(ids), actor, note)


async def discard(
    connection: asyncpg.Connection,
    tenant: str,
    ids: Iterable[UUID],
    *,
    actor: str | None,
    note: str | None,
) -> None:
    """Move the dead letters to `discarded` and record who discarded them."""
    await connection.execute(STATEMENTS.discard, tenant, list(ids), actor, note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The copy of a dead letter of the tenant, with another target (JSON).

    `shown` is the target without literal secrets.
    """

    tenant: str
    original: UUID
    copy: UUID
    target: str
    shown: str
    actor: str | None
    note: str | None


async def insert_edited_copy(connection: asyncpg.Connection, edit: Edit) -> None:
    """Insert an open copy and move the original to `superseded`."""
    await connection.execute(
        STATEMENTS.insert_edited_copy,
        edit.tenant,
        edit.original,
        edit.copy,
        edit.target,
        edit.shown,
        edit.actor,
        edit.note,
    )
    await connection.execute(STATEMENTS.supersede, edit.tenant, edit.original)


async def find_target(connection: asyncpg.Connection, tenant: str, id_: UUID) -> Any:  # noqa: ANN401  # JSON
    """Return the target that a replay of the dead letter would call, or None without a run."""
    text = await connection.fetchval(STATEMENTS.find_target, tenant, id_)
    return None if text is None else decode_trusted(text.encode())


async def count_open(connection: asyncpg.Connection | asyncpg.Pool) -> int:
    """Count the open dead letters outside hidden groups, up to `MAX_COUNTED`."""
    text, parameters = compile_statement(_open_count())
    count: int = await connection.fetchval(text, *parameters)
    return count


def _open_count() -> Select[Any]:
    counted = (
        select(literal_column("1"))
        .select_from(dead_letters)
        .where(
            dead_letters.c.state == DeadLetterState.OPEN,
            ~groups.is_hidden(dead_letters),
        )
        .limit(MAX_COUNTED)
        .subquery("counted")
    )
    return select(func.count()).select_from(counted)
