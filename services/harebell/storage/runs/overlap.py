"""Turns in SQL: which runs of a schedule stand, told to wait, given up, woken.

All but `stuck` is for a caller that holds the schedule's lock; it falls with the transaction. A
turn only says where to look: one whose run is not open is void, so a lost delete holds up nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.overlap import OverlapSlot
from harebell.domain.run_states import Reason, RunState
from harebell.storage.runs import key_arrays
from harebell.storage.runs.claims import ClaimKey

MAX_SCHEDULES: Final = 500  # schedules of one look
WAKE_AFTER: Final = 5.0  # seconds since its last ticket before a stuck run is woken once more

_LOCK: Final = "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key"
_TRY_LOCK: Final = """
SELECT key FROM unnest($1::bigint[]) AS key WHERE pg_try_advisory_xact_lock(key)
"""
# A run past its time goes nowhere: a sweep ends it.
_STANDING: Final = """
SELECT r.scheduled_for, r.schedule_id, r.state, r.reason, r.seq, r.version, r.lease_holder,
       r.override::text AS override, t.role,
       nullif(greatest(coalesce(r.next_attempt_at, r.due_at), now()), now()) AS not_before
FROM (
    SELECT scheduled_for, schedule_id FROM overlap_slots WHERE schedule_id = ANY($1)
    UNION SELECT * FROM unnest($2::timestamptz[], $3::uuid[])
) AS k
JOIN runs r ON r.scheduled_for = k.scheduled_for AND r.schedule_id = k.schedule_id
LEFT JOIN overlap_slots t ON t.schedule_id = k.schedule_id AND t.scheduled_for = k.scheduled_for
WHERE CASE WHEN r.state IN ('running', 'unresolved') THEN true
           WHEN r.state IN ('staged', 'retrying')
           THEN r.expires_at IS NULL OR r.expires_at > now()
           ELSE false END
"""
_LOCKED: Final = _STANDING + "ORDER BY r.scheduled_for, r.schedule_id FOR UPDATE OF r"
_TAKE: Final = """
INSERT INTO overlap_slots (scheduled_for, schedule_id, role, since)
SELECT t.*, now() FROM unnest($1::timestamptz[], $2::uuid[], $3::text[]) AS t
ON CONFLICT (schedule_id, scheduled_for) DO UPDATE SET role = excluded.role, since = now()
"""
_HOLD_BACK: Final = """
UPDATE runs r SET reason = 'waiting_for_overlap'
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') THEN true ELSE false END
"""
_GIVE_UP: Final = """
UPDATE runs r SET state = t.state, reason = t.reason, outcome = t.state, seq = r.seq + 1,
                  finished_at = now(), next_attempt_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::text[])
     AS t(scheduled_for, schedule_id, state, reason)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'staged' OR (r.state = 'retrying' AND t.state = 'cancelled')
           THEN true ELSE false END
"""
# A row that someone else has locked is passed over: a sweep wakes it, and nobody waits crosswise.
_WAKE: Final = """
WITH mine AS (
    SELECT r.scheduled_for, r.schedule_id
    FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
    JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
    WHERE CASE WHEN r.state IN ('staged', 'retrying') AND r.reason = 'waiting_for_overlap'
                AND (r.staged_at IS NULL OR r.staged_at <= now() - make_interval(secs => $3))
               THEN true ELSE false END
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET seq = r.seq + 1, staged_at = now()
FROM mine WHERE r.scheduled_for = mine.scheduled_for AND r.schedule_id = mine.schedule_id
RETURNING r.scheduled_for, r.schedule_id
"""
_FORGET: Final = """
DELETE FROM overlap_slots t WHERE t.schedule_id = ANY($1) AND NOT EXISTS (
    SELECT FROM runs r
    WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
      AND CASE WHEN r.state IN ('staged', 'running', 'retrying', 'unresolved') THEN true ELSE false END
)
"""
_STUCK: Final = """
SELECT t.schedule_id FROM overlap_slots t
LEFT JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
GROUP BY t.schedule_id
HAVING bool_or(coalesce(r.state, '') NOT IN ('staged', 'running', 'retrying', 'unresolved'))
    OR (bool_or(r.reason = 'waiting_for_overlap'
                AND (r.staged_at IS NULL OR r.staged_at < now() - make_interval(secs => $2)))
        AND NOT bool_or(r.state IN ('running', 'unresolved')))
LIMIT $1
"""


class Role(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class OpenRunRow:
    """An open run of a schedule that takes turns, as its row says."""

    key: RunKey
    slot: OverlapSlot
    role: Role | None  # None: only its ticket tells of it
    seq: int
    version: int
    override: str | None
    lease_holder: str | None
    reason: str | None
    not_before: datetime | None  # None: its time has come

    def can_be_claimed_by(self, wanted: ClaimKey) -> bool:
        """If there were no turns."""
        mine = (wanted.seq, wanted.version, wanted.override)
        is_mine = not self.slot.is_busy and mine == (self.seq, self.version, self.override)
        return is_mine and wanted.is_in_time_for(self.not_before)


async def lock(connection: asyncpg.Connection, schedules: Iterable[UUID]) -> None:
    """Waits for whoever else decides about them; in one order, so that no two wait crosswise."""
    if keys := sorted(set(map(_lock_of, schedules))):
        await connection.execute(_LOCK, keys)


async def try_lock(connection: asyncpg.Connection, schedules: Iterable[UUID]) -> set[UUID]:
    """Those that nobody else decides about just now."""
    wanted = {schedule: _lock_of(schedule) for schedule in schedules}
    rows = await connection.fetch(_TRY_LOCK, sorted(set(wanted.values())))
    mine = {row["key"] for row in rows}
    return {schedule for schedule, key in wanted.items() if key in mine}


def _lock_of(schedule: UUID) -> int:
    """Two schedules that share a lock wait for each other and are none the worse."""
    return int.from_bytes(schedule.bytes[:8], signed=True)


async def open_run_rows(
    connection: asyncpg.Connection, schedules: Collection[UUID]
) -> dict[UUID, list[OpenRunRow]]:
    return _by_schedule(await connection.fetch(_STANDING, list(schedules), [], []))


async def lock_open_run_rows(
    connection: asyncpg.Connection, keys: Collection[RunKey]
) -> dict[UUID, list[OpenRunRow]]:
    """With these runs among them; all rows locked, in key order."""
    schedules = list({key.schedule_id for key in keys})
    return _by_schedule(await connection.fetch(_LOCKED, schedules, *key_arrays(sorted(keys))))


def _by_schedule(rows: Sequence[asyncpg.Record]) -> dict[UUID, list[OpenRunRow]]:
    found: dict[UUID, list[OpenRunRow]] = defaultdict(list)
    for row in rows:
        found[row["schedule_id"]].append(_standing(row))
    return found


def _standing(row: asyncpg.Record) -> OpenRunRow:
    turn = OverlapSlot(
        row["scheduled_for"],
        RunState(row["state"]),
        is_running=row["role"] == Role.RUNNING,
        is_waiting=row["reason"] == Reason.WAITING_FOR_OVERLAP,
    )
    key = RunKey(row["scheduled_for"], row["schedule_id"])
    names = ("seq", "version", "override", "lease_holder", "reason", "not_before")
    role = None if row["role"] is None else Role(row["role"])
    return OpenRunRow(key, turn, role, **{name: row[name] for name in names})


async def save_slots(connection: asyncpg.Connection, roles: Mapping[RunKey, Role]) -> None:
    if roles:
        ordered = sorted(roles)
        await connection.execute(_TAKE, *key_arrays(ordered), [roles[key].value for key in ordered])


async def mark_waiting(connection: asyncpg.Connection, keys: Collection[RunKey]) -> None:
    """The rows stay as they are, told to wait for their turn."""
    if keys:
        await connection.execute(_HOLD_BACK, *key_arrays(sorted(keys)))


async def finish_without_attempt(
    connection: asyncpg.Connection, ends: Mapping[RunKey, tuple[RunState, Reason]]
) -> None:
    """Rows that the caller holds locked and knows to be staged or retrying."""
    if ends:
        ordered = sorted(ends)
        states, reasons = zip(*(ends[key] for key in ordered), strict=True)
        await connection.execute(_GIVE_UP, *key_arrays(ordered), states, reasons)


async def wake(
    connection: asyncpg.Connection, keys: Collection[RunKey], *, min_ticket_age: float = 0
) -> list[RunKey]:
    """Those that may be claimed by a new ticket: their rows say so, and the old one is stale.

    `unless_within`: so many seconds since their last ticket.
    """
    if not keys:
        return []
    rows = await connection.fetch(_WAKE, *key_arrays(sorted(keys)), min_ticket_age)
    return [RunKey(row["scheduled_for"], row["schedule_id"]) for row in rows]


async def delete_stale_slots(connection: asyncpg.Connection, schedules: Collection[UUID]) -> None:
    """Turns whose runs are not open."""
    await connection.execute(_FORGET, list(schedules))


async def find_stalled(pool: asyncpg.Pool) -> list[UUID]:
    """Schedules with void turns, or with runs that wait though nothing may run."""
    rows = await pool.fetch(_STUCK, MAX_SCHEDULES, WAKE_AFTER)
    return [row["schedule_id"] for row in rows]
