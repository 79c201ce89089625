"""The ticker's SQL for schedules: loading a book under locks, writing it back."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.identity import RunKey
from harebell.contract.scalars import EARLIEST
from harebell.contract.schedule import Definition
from harebell.kernel.db.ledger import columns
from harebell.kernel.ledger import RunState, ScheduleState
from harebell.ticker.book import Book, Entry, OpenRun, Version

CommandKey: TypeAlias = tuple[str, str, int]  # tenant, request id, place in its message

_ENTRY: Final = """
SELECT s.schedule_id, s.version, s.state, s.reason, s.next_at, s.planned_to, s.changed_at,
       s.dispatched, s.open_runs
FROM schedule_state s
"""
_ENTRIES: Final = _ENTRY + "WHERE s.schedule_id = ANY($1) ORDER BY s.schedule_id FOR UPDATE"
_DUE: Final = (
    _ENTRY + "WHERE s.next_at > $3 AND s.next_at <= $1 "
    "ORDER BY s.next_at LIMIT $2 FOR UPDATE SKIP LOCKED"
)
_VERSIONS: Final = """
SELECT v.schedule_id, v.version, s.tenant, v.definition, v.work, v.accepted_at
FROM unnest($1::uuid[], $2::int[]) AS t(schedule_id, version)
JOIN schedule_versions v USING (schedule_id, version)
JOIN schedules s ON s.id = v.schedule_id
"""
_OPEN_RUNS: Final = """
SELECT r.scheduled_for, r.schedule_id, r.state, r.attempt, r.seq, r.due_at, r.version,
       r.lease_holder, r.origin, r.finished_at, r.started_at
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
ORDER BY r.scheduled_for, r.schedule_id FOR UPDATE OF r
"""
_STILL_OPEN: Final = """
SELECT r.scheduled_for, r.schedule_id
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
WHERE CASE WHEN r.finished_at IS NULL THEN true ELSE false END
"""
_ANSWERED: Final = """
SELECT c.tenant, c.request_id, c.item, c.answer
FROM unnest($1::text[], $2::text[], $3::int[]) AS t(tenant, request_id, item)
JOIN commands c USING (tenant, request_id, item)
"""
_RECORD: Final = """
INSERT INTO commands (tenant, request_id, item, answer, created_at)
SELECT t.*, now() FROM unnest($1::text[], $2::text[], $3::int[], $4::json[]) AS t
"""  # a conflict fails the transaction: another ticker has just applied that command
_NEW_VERSIONS: Final = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, work, fingerprint, accepted_at, effective_at, actor)
SELECT t.id, t.version, t.definition, t.work, t.fingerprint, t.at, t.at, t.actor
FROM unnest($1::uuid[], $2::int[], $3::json[], $4::json[], $5::text[], $6::timestamptz[],
            $7::text[]) AS t(id, version, definition, work, fingerprint, at, actor)
"""
_SCHEDULES: Final = """
INSERT INTO schedules (id, tenant, key, name, owner, class, priority, pool, tags, metadata,
                       version, created_at, updated_at, actor)
SELECT t.id, t.tenant, d->>'key', d->>'name', d->>'owner', d->>'class',
       (d->>'priority')::smallint, d->>'pool',
       ARRAY(SELECT json_array_elements_text(d->'tags')), (d->'metadata')::jsonb,
       t.version, t.at, t.at, t.actor
FROM unnest($1::uuid[], $2::text[], $3::json[], $4::int[], $5::timestamptz[], $6::text[])
     AS t(id, tenant, d, version, at, actor)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, owner = excluded.owner, class = excluded.class,
    priority = excluded.priority, pool = excluded.pool, tags = excluded.tags,
    metadata = excluded.metadata, version = excluded.version,
    updated_at = excluded.updated_at, actor = excluded.actor
"""
_STATES: Final = """
INSERT INTO schedule_state (schedule_id, version, state, reason, next_at, planned_to,
                            changed_at, dispatched, open_runs)
SELECT t.id, t.version, t.state, t.reason, t.next_at, t.planned_to, t.changed_at, t.dispatched,
       string_to_array(t.open_runs, ' ')::timestamptz[]
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::timestamptz[],
            $6::timestamptz[], $7::timestamptz[], $8::int[], $9::text[])
     AS t(id, version, state, reason, next_at, planned_to, changed_at, dispatched, open_runs)
ON CONFLICT (schedule_id) DO UPDATE SET
    version = excluded.version, state = excluded.state, reason = excluded.reason,
    next_at = excluded.next_at, planned_to = excluded.planned_to,
    changed_at = excluded.changed_at, dispatched = excluded.dispatched,
    open_runs = excluded.open_runs
"""


class Versions:
    """Immutable versions by (schedule, number), read once; bounded, oldest reading out first."""

    LIMIT: Final = 20_000

    def __init__(self) -> None:
        self._known: dict[tuple[UUID, int], Version] = {}

    def keep(self, versions: Iterable[Version]) -> None:
        for version in versions:
            self._known[version.schedule_id, version.number] = version
        while len(self._known) > self.LIMIT:
            del self._known[next(iter(self._known))]

    async def of(
        self, connection: asyncpg.Connection, wanted: Sequence[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Version]:
        found = {key: self._known[key] for key in wanted if key in self._known}
        missing = [key for key in wanted if key not in found]
        if missing:
            ids, numbers = zip(*missing, strict=True)
            rows = await connection.fetch(_VERSIONS, ids, numbers)
            read = {(row["schedule_id"], row["version"]): _version(row) for row in rows}
            self.keep(read.values())
            found |= read
        return found


def _version(row: asyncpg.Record) -> Version:
    return Version(
        row["schedule_id"],
        row["version"],
        row["tenant"],
        Definition.model_validate_json(row["definition"]),
        row["work"],
        row["accepted_at"],
    )


async def _entries(
    connection: asyncpg.Connection, versions: Versions, rows: Sequence[asyncpg.Record]
) -> list[Entry]:
    wanted = [(row["schedule_id"], row["version"]) for row in rows]
    known = await versions.of(connection, wanted)
    return [
        Entry(
            known[key],
            ScheduleState(row["state"]),
            planned_to=row["planned_to"],
            changed_at=row["changed_at"],
            next_at=row["next_at"],
            dispatched=row["dispatched"],
            open_runs=tuple(row["open_runs"]),
            reason=row["reason"],
        )
        for key, row in zip(wanted, rows, strict=True)
    ]


async def load_due(
    connection: asyncpg.Connection,
    versions: Versions,
    until: datetime,
    limit: int,
    *,
    after: datetime = EARLIEST,
) -> list[Entry]:
    """Schedules that owe something in (after, until], locked; another ticker's are passed over."""
    rows = await connection.fetch(_DUE, until, limit, after)
    return await _entries(connection, versions, rows)


async def load_book(
    connection: asyncpg.Connection,
    versions: Versions,
    schedules: Iterable[UUID],
    named_runs: Iterable[RunKey],
) -> Book:
    """The schedules and all their open runs, locked in key order."""
    rows = await connection.fetch(_ENTRIES, sorted(set(schedules)))
    entries = await _entries(connection, versions, rows)
    keys = {RunKey(moment, entry.id) for entry in entries for moment in entry.open_runs}
    book = Book(entries={entry.id: entry for entry in entries})
    for row in await connection.fetch(_OPEN_RUNS, *columns(sorted(keys | set(named_runs)))):
        key = RunKey(row["scheduled_for"], row["schedule_id"])
        if row["finished_at"] is None:
            book.runs[key] = _open_run(key, row)
        else:
            book.taken.add(key)
    return book


def _open_run(key: RunKey, row: asyncpg.Record) -> OpenRun:
    return OpenRun(
        key,
        RunState(row["state"]),
        row["attempt"],
        row["seq"],
        row["due_at"],
        row["version"],
        row["lease_holder"],
        counts=row["origin"] is None,
        started=row["started_at"] is not None,
    )


async def still_open(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> set[RunKey]:
    if not keys:
        return set()
    rows = await connection.fetch(_STILL_OPEN, *columns(sorted(keys)))
    return {RunKey(row["scheduled_for"], row["schedule_id"]) for row in rows}


async def answered(
    connection: asyncpg.Connection, commands: Sequence[CommandKey]
) -> dict[CommandKey, bytes]:
    """What repeated commands were answered the first time, as JSON."""
    if not commands:
        return {}
    rows = await connection.fetch(_ANSWERED, *map(list, zip(*commands, strict=True)))
    return {(row["tenant"], row["request_id"], row["item"]): row["answer"] for row in rows}


async def record(connection: asyncpg.Connection, answers: Mapping[CommandKey, bytes]) -> None:
    if answers:
        tenants, requests, items = map(list, zip(*answers, strict=True))
        texts = [answer.decode() for answer in answers.values()]
        await connection.execute(_RECORD, tenants, requests, items, texts)


async def save_schedules(connection: asyncpg.Connection, book: Book) -> None:
    """New versions and what users see of their schedules."""
    if not (made := book.new_versions):
        return
    definitions = [v.definition.model_dump_json(by_alias=True, exclude_none=True) for v in made]
    ids, numbers = [v.schedule_id for v in made], [v.number for v in made]
    at, actors = [v.accepted_at for v in made], [v.actor for v in made]
    prints = [v.definition.fingerprint() for v in made]
    works = [v.work for v in made]
    await connection.execute(_NEW_VERSIONS, ids, numbers, definitions, works, prints, at, actors)
    latest = {v.schedule_id: i for i, v in enumerate(made)}  # one row per statement and key
    picked = sorted(latest.values())
    await connection.execute(
        _SCHEDULES,
        [ids[i] for i in picked],
        [made[i].tenant for i in picked],
        [definitions[i] for i in picked],
        [numbers[i] for i in picked],
        [at[i] for i in picked],
        [actors[i] for i in picked],
    )


async def save_states(connection: asyncpg.Connection, entries: Iterable[Entry]) -> None:
    """In key order. An array of arrays cannot be ragged: `open_runs` travels as text."""
    ordered = sorted(entries, key=lambda entry: entry.id)
    if not ordered:
        return
    await connection.execute(
        _STATES,
        [entry.id for entry in ordered],
        [entry.version.number for entry in ordered],
        [entry.state.value for entry in ordered],
        [entry.reason for entry in ordered],
        [entry.next_at for entry in ordered],
        [entry.planned_to for entry in ordered],
        [entry.changed_at for entry in ordered],
        [entry.dispatched for entry in ordered],
        [" ".join(moment.isoformat() for moment in entry.open_runs) for entry in ordered],
    )
