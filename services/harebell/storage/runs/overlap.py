"""Overlap slots: the open runs of a schedule, and which of them execute, wait or end.

Except for `find_stalled`, the caller has the advisory lock of the schedule, which ends with the
transaction. Rows of `overlap_slots` are only hints: if its run is not open, a row has no effect.
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
from harebell.domain.concurrency import Label
from harebell.domain.overlap import OverlapSlot
from harebell.domain.run_states import Actor, Reason, RunState, is_allowed
from harebell.storage.runs import before, key_arrays, label_slots, sql_list
from harebell.storage.runs.claims import ClaimKey

MAX_SCHEDULES: Final = 500  # in one search for stalled schedules
WAKE_AFTER: Final = 5.0  # seconds after its last ticket until a stalled run is woken again

# The rescuer ends an expired run, so the run neither executes nor waits.
_OPEN_RUN_ROWS: Final = """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    limit_lock_wait: str
    lock: str
    try_lock: str
    open_run_rows: str
    lock_open_run_rows: str
    save_slots: str
    mark_waiting: str
    finish_without_attempt: str
    wake: str
    delete_stale_slots: str
    find_stalled: str


_WAKEABLE: Final = sql_list(each for each in RunState if is_allowed(Actor.OVERLAP, each, each))
STATEMENTS: Final = OverlapStatements(
    limit_lock_wait="SET LOCAL lock_timeout = '100ms'",
    lock="SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key",
    try_lock="""
SELECT key FROM unnest($1::bigint[]) AS key WHERE pg_try_advisory_xact_lock(key)
""",
    open_run_rows=_OPEN_RUN_ROWS,
    lock_open_run_rows=_OPEN_RUN_ROWS + "ORDER BY r.scheduled_for, r.schedule_id FOR UPDATE OF r",
    save_slots="""
INSERT INTO overlap_slots (scheduled_for, schedule_id, role, since)
SELECT t.*, now() FROM unnest($1::timestamptz[], $2::uuid[], $3::text[]) AS t
ON CONFLICT (schedule_id, scheduled_for) DO UPDATE SET role = excluded.role, since = now()
""",
    mark_waiting="""
UPDATE runs r SET reason = 'waiting_for_overlap'
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') THEN true ELSE false END
""",
    finish_without_attempt=f"""
UPDATE runs r SET state = t.state, reason = t.reason, outcome = t.state, seq = r.seq + 1,
                  finished_at = now(), next_attempt_at = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::text[])
     AS t(scheduled_for, schedule_id, state, reason)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN t.state = 'cancelled'
           THEN r.state {before(Actor.OVERLAP, RunState.CANCELLED)}
           ELSE r.state {before(Actor.OVERLAP, RunState.SKIPPED)} END
""",
    # The rescuer wakes a row that another transaction has locked. A wait could cause a deadlock.
    # The audit measures the delay of a woken run from its first wake, and the rescuer repeats it.
    wake=f"""
WITH waiting AS (
    SELECT r.scheduled_for, r.schedule_id
    FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
    JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
    WHERE CASE WHEN r.state {_WAKEABLE} AND r.reason = '{Reason.WAITING_FOR_OVERLAP}'
                AND (r.staged_at IS NULL OR r.staged_at <= now() - make_interval(secs => $3))
               THEN true ELSE false END
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET seq = r.seq + 1, staged_at = now(),
                  republished_at = CASE WHEN $3 > 0 THEN now() END,
                  first_staged_at = CASE WHEN $3 > 0 AND r.republished_at = r.staged_at
                                         THEN r.first_staged_at
                                         WHEN $3 > 0 THEN now() END
FROM waiting
WHERE r.scheduled_for = waiting.scheduled_for AND r.schedule_id = waiting.schedule_id
RETURNING r.scheduled_for, r.schedule_id
""",
    delete_stale_slots="""
DELETE FROM overlap_slots t WHERE t.schedule_id = ANY($1) AND NOT EXISTS (
    SELECT FROM runs r
    WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
      AND CASE WHEN r.state IN ('staged', 'running', 'retrying', 'unresolved')
               THEN true ELSE false END
)
""",
    find_stalled="""
SELECT t.schedule_id FROM overlap_slots t
LEFT JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
GROUP BY t.schedule_id
HAVING bool_or(coalesce(r.state, '') NOT IN ('staged', 'running', 'retrying', 'unresolved'))
    OR (bool_or(r.reason = 'waiting_for_overlap'
                AND (r.staged_at IS NULL OR r.staged_at < now() - make_interval(secs => $2)))
        AND NOT bool_or(r.state IN ('running', 'unresolved')))
LIMIT $1
""",
)


class Role(StrEnum):
    """The role of a run in the overlap slot of its schedule."""

    RUNNING = "running"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRunRow:
    """The row of an open run of a schedule that restricts overlap."""

    key: RunKey
    slot: OverlapSlot
    role: Role | None  # None: the run has no row in `overlap_slots`
    seq: int
    version: int
    override: str | None
    lease_holder: str | None
    reason: str | None
    not_before: datetime | None  # None: the run is due

    def can_be_claimed_by(self, ticket: ClaimKey) -> bool:
        """Return whether the ticket could claim the run without the overlap policy."""
        values = (ticket.seq, ticket.version, ticket.override)
        is_current = values == (self.seq, self.version, self.override)
        return is_current and not self.slot.is_busy and ticket.is_in_time_for(self.not_before)


async def limit_lock_wait(connection: asyncpg.Connection) -> None:
    """Let each later statement of the transaction fail that waits longer for a lock.

    It then raises `asyncpg.LockNotAvailableError`.
    """
    await connection.execute(STATEMENTS.limit_lock_wait)


async def lock(
    connection: asyncpg.Connection, schedules: Iterable[UUID], labels: Iterable[Label] = ()
) -> None:
    """Lock the schedules and the concurrency labels in one order.

    No two transactions then wait for each other.
    """
    if keys := sorted({*map(_lock_key, schedules), *map(label_slots.lock_key, labels)}):
        await connection.execute(STATEMENTS.lock, keys)


async def try_lock(connection: asyncpg.Connection, schedules: Iterable[UUID]) -> set[UUID]:
    """Lock the schedules that no other transaction has locked, and return them."""
    keys = {schedule: _lock_key(schedule) for schedule in schedules}
    rows = await connection.fetch(STATEMENTS.try_lock, sorted(set(keys.values())))
    locked = {row["key"] for row in rows}
    return {schedule for schedule, key in keys.items() if key in locked}


def _lock_key(schedule: UUID) -> int:
    """Return the key of the advisory lock. Two schedules may share a key without harm."""
    return int.from_bytes(schedule.bytes[:8], signed=True)


async def open_run_rows(
    connection: asyncpg.Connection, schedules: Collection[UUID]
) -> dict[UUID, list[OpenRunRow]]:
    """Return the open runs with a row in `overlap_slots`, by schedule."""
    rows = await connection.fetch(STATEMENTS.open_run_rows, list(schedules), [], [])
    return _by_schedule(rows)


async def lock_open_run_rows(
    connection: asyncpg.Connection, keys: Collection[RunKey]
) -> dict[UUID, list[OpenRunRow]]:
    """Lock and return the open runs of the schedules of `keys`, including the runs of `keys`.

    The statement locks the rows in key order.
    """
    schedules = list({key.schedule_id for key in keys})
    arrays = key_arrays(sorted(keys))
    return _by_schedule(await connection.fetch(STATEMENTS.lock_open_run_rows, schedules, *arrays))


def _by_schedule(rows: Sequence[asyncpg.Record]) -> dict[UUID, list[OpenRunRow]]:
    found: dict[UUID, list[OpenRunRow]] = defaultdict(list)
    for row in rows:
        found[row["schedule_id"]].append(_open_run_row(row))
    return found


def _open_run_row(row: asyncpg.Record) -> OpenRunRow:
    slot = OverlapSlot(
        row["scheduled_for"],
        RunState(row["state"]),
        is_running=row["role"] == Role.RUNNING,
        is_waiting=row["reason"] == Reason.WAITING_FOR_OVERLAP,
    )
    return OpenRunRow(
        key=RunKey(row["scheduled_for"], row["schedule_id"]),
        slot=slot,
        role=None if row["role"] is None else Role(row["role"]),
        seq=row["seq"],
        version=row["version"],
        override=row["override"],
        lease_holder=row["lease_holder"],
        reason=row["reason"],
        not_before=row["not_before"],
    )


async def save_slots(connection: asyncpg.Connection, roles: Mapping[RunKey, Role]) -> None:
    if roles:
        ordered = sorted(roles)
        values = [roles[key].value for key in ordered]
        await connection.execute(STATEMENTS.save_slots, *key_arrays(ordered), values)


async def mark_waiting(connection: asyncpg.Connection, keys: Collection[RunKey]) -> None:
    """Record that the runs wait for the overlap slot. Their state and `seq` do not change."""
    if keys:
        await connection.execute(STATEMENTS.mark_waiting, *key_arrays(sorted(keys)))


async def finish_without_attempt(
    connection: asyncpg.Connection, ends: Mapping[RunKey, tuple[RunState, Reason]]
) -> None:
    """Skip or cancel runs whose rows the caller has locked in the state `staged` or `retrying`."""
    if ends:
        ordered = sorted(ends)
        states, reasons = zip(*(ends[key] for key in ordered), strict=True)
        arrays = key_arrays(ordered)
        await connection.execute(STATEMENTS.finish_without_attempt, *arrays, states, reasons)


async def wake(
    connection: asyncpg.Connection, keys: Collection[RunKey], *, min_ticket_age: float = 0
) -> list[RunKey]:
    """Increase the `seq` of waiting runs and return the runs that need a new ticket.

    Skip a locked row, and a run whose last ticket is younger than `min_ticket_age` seconds.
    The new `seq` makes older tickets stale.
    """
    if not keys:
        return []
    rows = await connection.fetch(STATEMENTS.wake, *key_arrays(sorted(keys)), min_ticket_age)
    return [RunKey(row["scheduled_for"], row["schedule_id"]) for row in rows]


async def delete_stale_slots(connection: asyncpg.Connection, schedules: Collection[UUID]) -> None:
    """Delete the overlap slots of runs that are not open."""
    await connection.execute(STATEMENTS.delete_stale_slots, list(schedules))


async def find_stalled(pool: asyncpg.Pool) -> list[UUID]:
    """Return schedules with stale slots, or with waiting runs although no run executes."""
    rows = await pool.fetch(STATEMENTS.find_stalled, MAX_SCHEDULES, WAKE_AFTER)
    return [row["schedule_id"] for row in rows]
