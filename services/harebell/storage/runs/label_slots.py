"""Label slots: the runs of a concurrency label, and which of them execute, wait or have a slot.

Except for `find_stalled` and `try_lock`, the caller has the lock of the label.
These rows are only hints: a slot counts while its run is `running`, or for the seconds of its
reservation, so every transition that ends the execution frees it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.concurrency import MAX_LINE, RESERVATION, Label, LabelRole, LabelSlot
from harebell.domain.run_states import Actor, Reason, RunState, is_allowed
from harebell.storage.runs import in_key_order, key_arrays, sql_list

MAX_LABELS: Final = 500  # in one search for stalled labels


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    try_lock: str
    slots: str
    places: str
    save: str
    mark_waiting: str
    wake: str
    reserve: str
    delete_stale: str
    find_stalled: str


_WAKEABLE: Final = sql_list(each for each in RunState if is_allowed(Actor.LABEL, each, each))
STATEMENTS: Final = LabelStatements(
    try_lock="""
SELECT t.k FROM unnest($1::bigint[]) WITH ORDINALITY AS t(key, k)
WHERE pg_try_advisory_xact_lock(t.key)
""",
    # A run of a version without a label keeps the role of its earlier version, and has no slot.
    slots="""
SELECT l.tenant, l.label, s.*
FROM unnest($1::text[], $2::text[]) AS l(tenant, label)
CROSS JOIN LATERAL (
    (SELECT s.scheduled_for, s.schedule_id, s.due_at, s.run_limit, s.role
     FROM label_slots s
     JOIN runs r ON r.scheduled_for = s.scheduled_for AND r.schedule_id = s.schedule_id
     WHERE s.tenant = l.tenant AND s.label = l.label AND s.role IN ('running', 'reserved')
       AND CASE WHEN r.state = 'running' THEN s.role = 'running'
                WHEN r.state IN ('staged', 'retrying') THEN s.reserved_until > now()
                ELSE false END)
    UNION ALL
    (SELECT s.scheduled_for, s.schedule_id, s.due_at, s.run_limit, s.role
     FROM label_slots s
     JOIN runs r ON r.scheduled_for = s.scheduled_for AND r.schedule_id = s.schedule_id
     WHERE s.tenant = l.tenant AND s.label = l.label AND s.role = 'waiting'
       AND CASE WHEN r.state IN ('staged', 'retrying') AND r.reason = 'waiting_for_label'
                THEN r.expires_at IS NULL OR r.expires_at > now() ELSE false END
     ORDER BY s.due_at, s.scheduled_for, s.schedule_id LIMIT $3)
) AS s
""",
    places="""
SELECT t.k, s.due_at
FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY AS t(scheduled_for, schedule_id, k)
JOIN label_slots s ON s.scheduled_for = t.scheduled_for AND s.schedule_id = t.schedule_id
WHERE s.role <> 'running'
""",
    save="""
INSERT INTO label_slots (scheduled_for, schedule_id, tenant, label, run_limit, due_at, role, since)
SELECT t.*, now()
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::text[], $5::int[], $6::timestamptz[],
            $7::text[]) AS t
ON CONFLICT (schedule_id, scheduled_for) DO UPDATE SET
    tenant = excluded.tenant, label = excluded.label, run_limit = excluded.run_limit,
    due_at = excluded.due_at, role = excluded.role, since = now(), reserved_until = NULL
""",
    mark_waiting="""
UPDATE runs r SET reason = 'waiting_for_label'
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state IN ('staged', 'retrying') THEN true ELSE false END
""",
    # A woken run is due now, so the rescuer finds its ticket if the ticket is lost. The rescuer
    # also wakes a run whose row another transaction has locked. A wait could cause a deadlock.
    wake=f"""
WITH waiting AS (
    SELECT r.scheduled_for, r.schedule_id
    FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
    JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
    WHERE CASE WHEN r.state {_WAKEABLE} AND r.reason = '{Reason.WAITING_FOR_LABEL}'
               THEN true ELSE false END
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET seq = r.seq + 1, staged_at = now(), next_attempt_at = now(), reason = NULL,
                  republished_at = NULL, first_staged_at = NULL
FROM waiting
WHERE r.scheduled_for = waiting.scheduled_for AND r.schedule_id = waiting.schedule_id
RETURNING r.scheduled_for, r.schedule_id
""",
    reserve="""
UPDATE label_slots s SET role = 'reserved', since = now(),
                         reserved_until = now() + make_interval(secs => $3)
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
WHERE s.scheduled_for = t.scheduled_for AND s.schedule_id = t.schedule_id
""",
    # A label can have many waiting runs, and the end of each run must not read all of them.
    delete_stale="""
DELETE FROM label_slots s USING unnest($1::text[], $2::text[]) AS l(tenant, label)
WHERE s.tenant = l.tenant AND s.label = l.label AND ($3 OR s.role IN ('running', 'reserved'))
  AND NOT EXISTS (
    SELECT FROM runs r
    WHERE r.scheduled_for = s.scheduled_for AND r.schedule_id = s.schedule_id
      AND CASE WHEN r.state = 'running' THEN true
               WHEN r.state IN ('staged', 'retrying') THEN s.role <> 'running'
               ELSE false END
)
""",
    find_stalled="""
SELECT s.tenant, s.label
FROM label_slots s
LEFT JOIN runs r ON r.scheduled_for = s.scheduled_for AND r.schedule_id = s.schedule_id
GROUP BY s.tenant, s.label
HAVING bool_or(coalesce(r.state, '') NOT IN ('staged', 'running', 'retrying'))
    OR count(*) FILTER (WHERE CASE WHEN r.state = 'running' THEN s.role = 'running'
                                   WHEN r.state IN ('staged', 'retrying')
                                   THEN s.reserved_until > now() ELSE false END)
       < max(s.run_limit) FILTER (WHERE s.role = 'waiting' AND r.reason = 'waiting_for_label')
ORDER BY s.tenant, s.label LIMIT $1
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDecision:
    """The decision about a due run of a label. The role of its slot is running or waiting."""

    slot: LabelSlot
    label: Label

    @property
    def key(self) -> RunKey:
        return self.slot.key


def lock_key(label: Label) -> int:
    """Return the key of the advisory lock. A lock that two names share does no harm."""
    name = f"label {label.tenant} {label.name}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), signed=True)


async def try_lock(connection: asyncpg.Connection, labels: Iterable[Label]) -> set[Label]:
    """Lock the labels that no other transaction has locked, and return them."""
    if not (ordered := sorted(set(labels))):
        return set()
    rows = await connection.fetch(STATEMENTS.try_lock, [lock_key(each) for each in ordered])
    return {ordered[row["k"] - 1] for row in rows}


async def read_slots(
    connection: asyncpg.Connection, labels: Collection[Label]
) -> dict[Label, list[LabelSlot]]:
    """Return the occupied slots of each label and the first `MAX_LINE` runs of its line."""
    rows = await connection.fetch(STATEMENTS.slots, *_label_arrays(labels), MAX_LINE)
    found: dict[Label, list[LabelSlot]] = defaultdict(list)
    for row in rows:
        slot = LabelSlot(
            key=RunKey(row["scheduled_for"], row["schedule_id"]),
            due_at=row["due_at"],
            limit=row["run_limit"],
            role=LabelRole(row["role"]),
        )
        found[Label(row["tenant"], row["label"])].append(slot)
    return found


async def places(
    connection: asyncpg.Connection, keys: Collection[RunKey]
) -> dict[RunKey, datetime]:
    """Return the place in the line of each run that has waited since its last execution."""
    ordered = sorted(keys)
    rows = await connection.fetch(STATEMENTS.places, *key_arrays(ordered))
    return {ordered[row["k"] - 1]: row["due_at"] for row in rows}


async def save(connection: asyncpg.Connection, decisions: Sequence[LabelDecision]) -> None:
    """Write the rows of the decided runs, and mark the runs that wait.

    The state and the `seq` of a waiting run do not change.
    """
    ordered = in_key_order(decisions)
    await connection.execute(
        STATEMENTS.save,
        *key_arrays(each.key for each in ordered),
        [each.label.tenant for each in ordered],
        [each.label.name for each in ordered],
        [each.slot.limit for each in ordered],
        [each.slot.due_at for each in ordered],
        [each.slot.role.value for each in ordered],
    )
    if waiting := [each.key for each in ordered if each.slot.role is LabelRole.WAITING]:
        await connection.execute(STATEMENTS.mark_waiting, *key_arrays(waiting))


async def wake(connection: asyncpg.Connection, keys: Collection[RunKey]) -> list[RunKey]:
    """Increase the `seq` of waiting runs, reserve their slots and return the woken runs."""
    if not keys:
        return []
    rows = await connection.fetch(STATEMENTS.wake, *key_arrays(sorted(keys)))
    woken = sorted(RunKey(row["scheduled_for"], row["schedule_id"]) for row in rows)
    seconds = RESERVATION.total_seconds()
    await connection.execute(STATEMENTS.reserve, *key_arrays(woken), seconds)
    return woken


async def delete_stale(
    connection: asyncpg.Connection, labels: Collection[Label], *, with_waiting: bool
) -> None:
    """Delete the rows of runs that neither execute nor wait, on request also of waiting ones."""
    await connection.execute(STATEMENTS.delete_stale, *_label_arrays(labels), with_waiting)


async def find_stalled(pool: asyncpg.Pool) -> list[Label]:
    """Return labels with stale rows, or with waiting runs although a slot may be free."""
    rows = await pool.fetch(STATEMENTS.find_stalled, MAX_LABELS)
    return [Label(row["tenant"], row["label"]) for row in rows]


def _label_arrays(labels: Collection[Label]) -> tuple[list[str], list[str]]:
    ordered = sorted(labels)
    return [each.tenant for each in ordered], [each.name for each in ordered]
