"""The ticker's SQL for schedules: loading a book under locks, writing it back."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from harebell.contract.commands import ScheduleFilter
from harebell.contract.ids import RunKey
from harebell.contract.types import EARLIEST
from harebell.domain.run_states import RunState, ScheduleState
from harebell.storage.runs import key_arrays, nullable_array
from harebell.ticker.model.unit_of_work import Ended, LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.store.versions import VersionCache

_ENTRY: Final = """
SELECT s.schedule_id, s.version, s.state, s.reason, s.next_at, s.planned_until, s.changed_at,
       s.dispatched, s.open_runs, s.awaited_run, s.consecutive_failures, s.paused_until, s.pending_version,
       s.pending_at, s.skipped_times
"""
_NUMBERED: Final = (
    ", (SELECT max(v.version) FROM schedule_versions v "  # also of what came to nothing
)
_ENTRIES: Final = (
    _ENTRY + _NUMBERED + "WHERE v.schedule_id = s.schedule_id) AS last_number "
    "FROM schedule_state s WHERE s.schedule_id = ANY($1) ORDER BY s.schedule_id FOR UPDATE"
)
_DUE: Final = (
    _ENTRY + ", s.version AS last_number "  # who plans makes no version
    "FROM schedule_state s WHERE s.next_at > $3 AND s.next_at <= $1 "
    "ORDER BY s.next_at LIMIT $2 FOR UPDATE SKIP LOCKED"
)
_PARK_NEXT: Final = """
UPDATE schedule_state SET state = 'errored', next_at = NULL, reason = $2
WHERE schedule_id = (SELECT schedule_id FROM schedule_state WHERE next_at <= $1
                     ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING schedule_id
"""
_OPEN_RUNS: Final = """
SELECT r.scheduled_for, r.schedule_id, r.state, r.attempt, r.seq, r.due_at, r.version,
       r.lease_holder, r.origin, r.finished_at, r.started_at, r.replay_number,
       CASE WHEN r.stop_requested_at IS NOT NULL THEN coalesce(r.reason, 'cancelled') END AS stop
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
_COUNTED: Final = """
SELECT r.scheduled_for, r.schedule_id
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
WHERE CASE WHEN r.origin IS NULL AND NOT (r.state = 'cancelled' AND r.attempt = 0)
           THEN true ELSE false END
"""
_TAKEN_BACK: Final = """
SELECT r.scheduled_for, r.schedule_id
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
WHERE CASE WHEN r.state = 'cancelled' AND r.attempt = 0 AND r.reason = 'paused'
            AND r.origin IS NULL AND r.replay_number = 0
           THEN true ELSE false END
"""
_SELECT: Final = """
SELECT s.id FROM schedules s JOIN schedule_state t ON t.schedule_id = s.id
WHERE s.tenant = $1 AND ($2::text IS NULL OR s.tags @> ARRAY[$2])
  AND ($3::text IS NULL OR s.owner = $3) AND ($4::text IS NULL OR s.name = $4)
  AND ($5::text IS NULL OR t.state = $5)
ORDER BY s.id LIMIT $6
"""
_AWAITING: Final = """
SELECT schedule_id FROM schedule_state WHERE awaited_run IS NOT NULL AND state = 'active'
ORDER BY schedule_id LIMIT $1
"""
_STATES: Final = """
INSERT INTO schedule_state (schedule_id, version, state, reason, next_at, planned_until,
                            changed_at, dispatched, open_runs, awaited_run, consecutive_failures, paused_until,
                            pending_version, pending_at, skipped_times)
SELECT t.id, t.version, t.state, t.reason, t.next_at, t.planned_until, t.changed_at, t.dispatched,
       string_to_array(t.open_runs, ' ')::timestamptz[], t.awaited_run, t.consecutive_failures, t.paused_until,
       t.pending_version, t.pending_at, string_to_array(t.skipped_times, ' ')::timestamptz[]
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::timestamptz[],
            $6::timestamptz[], $7::timestamptz[], $8::int[], $9::text[], $10::timestamptz[],
            $11::int[], $12::timestamptz[], $13::int[], $14::timestamptz[], $15::text[])
     AS t(id, version, state, reason, next_at, planned_until, changed_at, dispatched, open_runs,
          awaited_run, consecutive_failures, paused_until, pending_version, pending_at, skipped_times)
ON CONFLICT (schedule_id) DO UPDATE SET
    version = excluded.version, state = excluded.state, reason = excluded.reason,
    next_at = excluded.next_at, planned_until = excluded.planned_until,
    changed_at = excluded.changed_at, dispatched = excluded.dispatched,
    open_runs = excluded.open_runs, awaited_run = excluded.awaited_run, consecutive_failures = excluded.consecutive_failures,
    paused_until = excluded.paused_until, pending_version = excluded.pending_version,
    pending_at = excluded.pending_at, skipped_times = excluded.skipped_times
"""


async def _entries(
    connection: asyncpg.Connection, versions: VersionCache, rows: Sequence[asyncpg.Record]
) -> list[ScheduleRecord]:
    wanted = [(row["schedule_id"], row["version"]) for row in rows]
    pending = [(r["schedule_id"], r["pending_version"]) for r in rows if r["pending_version"]]
    known = await versions.load(connection, wanted + pending)
    return [
        ScheduleRecord(
            known[key],
            ScheduleState(row["state"]),
            planned_until=row["planned_until"],
            changed_at=row["changed_at"],
            next_at=row["next_at"],
            dispatched=row["dispatched"],
            open_runs=tuple(row["open_runs"]),
            reason=row["reason"],
            awaited_run=row["awaited_run"],
            consecutive_failures=row["consecutive_failures"],
            paused_until=row["paused_until"],
            pending=known.get((key[0], row["pending_version"])),
            skipped_times=tuple(row["skipped_times"]),
            last_number=row["last_number"],
        )
        for key, row in zip(wanted, rows, strict=True)
    ]


async def load_due(
    connection: asyncpg.Connection,
    versions: VersionCache,
    until: datetime,
    limit: int,
    *,
    after: datetime = EARLIEST,
) -> list[ScheduleRecord]:
    """Schedules that owe something in (after, until], locked; another ticker's are passed over."""
    rows = await connection.fetch(_DUE, until, limit, after)
    return await _entries(connection, versions, rows)


async def mark_next_errored(pool: asyncpg.Pool, until: datetime, reason: str) -> UUID | None:
    """The schedule that owes the next run, unread: that it cannot be read may be its fault."""
    parked: UUID | None = await pool.fetchval(_PARK_NEXT, until, reason)
    return parked


async def load_unit_of_work(
    connection: asyncpg.Connection,
    versions: VersionCache,
    schedules: Iterable[UUID],
    named_runs: Iterable[RunKey],
) -> UnitOfWork:
    """The schedules and all their open runs, locked in key order."""
    rows = await connection.fetch(_ENTRIES, sorted(set(schedules), key=int))
    entries = await _entries(connection, versions, rows)
    keys = {RunKey(moment, entry.id) for entry in entries for moment in entry.open_runs}
    book = UnitOfWork(schedules={entry.id: entry for entry in entries})
    for row in await connection.fetch(_OPEN_RUNS, *key_arrays(sorted(keys | set(named_runs)))):
        key = RunKey(row["scheduled_for"], row["schedule_id"])
        if row["finished_at"] is None:
            book.open_runs[key] = _open_run(key, row)
        else:
            book.ended_runs[key] = Ended(RunState(row["state"]), row["finished_at"])
    return book


def _open_run(key: RunKey, row: asyncpg.Record) -> LockedRun:
    return LockedRun(
        key,
        RunState(row["state"]),
        row["attempt"],
        row["seq"],
        row["due_at"],
        row["version"],
        row["lease_holder"],
        is_from_recurrence=row["origin"] is None and row["replay_number"] == 0,
        is_replayed=row["replay_number"] > 0,
        has_started=row["started_at"] is not None,
        stop_reason=row["stop"],
    )


async def find_open(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> set[RunKey]:
    return await _those(connection, _STILL_OPEN, keys)


async def find_counted(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> set[RunKey]:
    """Those that their timetable owed and that were not withdrawn before they began."""
    return await _those(connection, _COUNTED, keys)


async def find_unstaged_by_pause(
    connection: asyncpg.Connection, keys: Sequence[RunKey]
) -> set[RunKey]:
    """Those that their timetable owed and that a pause withdrew before they began."""
    return await _those(connection, _TAKEN_BACK, keys)


async def _those(connection: asyncpg.Connection, which: str, keys: Sequence[RunKey]) -> set[RunKey]:
    if not keys:
        return set()
    rows = await connection.fetch(which, *key_arrays(sorted(keys)))
    return {RunKey(row["scheduled_for"], row["schedule_id"]) for row in rows}


async def save_states(connection: asyncpg.Connection, entries: Iterable[ScheduleRecord]) -> None:
    """In key order. An array of arrays cannot be ragged: arrays travel as text."""
    ordered = sorted(entries, key=lambda entry: entry.id.int)
    if not ordered:
        return
    await connection.execute(
        _STATES,
        [entry.id for entry in ordered],
        [entry.version.number for entry in ordered],
        [entry.state.value for entry in ordered],
        nullable_array(entry.reason for entry in ordered),
        nullable_array(entry.next_at for entry in ordered),
        [entry.planned_until for entry in ordered],
        [entry.changed_at for entry in ordered],
        [entry.dispatched for entry in ordered],
        [_instants(entry.open_runs) for entry in ordered],
        nullable_array(entry.awaited_run for entry in ordered),
        [entry.consecutive_failures for entry in ordered],
        nullable_array(entry.paused_until for entry in ordered),
        nullable_array(entry.pending.number if entry.pending else None for entry in ordered),
        nullable_array(entry.pending.effective_at if entry.pending else None for entry in ordered),
        [_instants(entry.skipped_times) for entry in ordered],
    )


def _instants(moments: Iterable[datetime]) -> str:
    return " ".join(moment.isoformat() for moment in moments)


async def find_schedules(
    connection: asyncpg.Connection, tenant: str, selector: ScheduleFilter, limit: int
) -> list[UUID]:
    """In a transaction. Planned for what is asked: a plan for any selector reads every schedule."""
    await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
    rows = await connection.fetch(
        _SELECT, tenant, selector.tag, selector.owner, selector.name, selector.state, limit
    )
    await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    return [row["id"] for row in rows]


async def find_awaiting(pool: asyncpg.Pool, limit: int) -> list[UUID]:
    """Schedules that wait for the end of a run; what is halted is looked at when it goes on."""
    return [row["schedule_id"] for row in await pool.fetch(_AWAITING, limit)]
