"""The SQL of schedules: loading them with their locked runs, and writing their states."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from harebell.contract.commands import ScheduleFilter
from harebell.contract.ids import RunKey
from harebell.contract.types import EARLIEST, LATEST
from harebell.domain.run_states import RunResult, RunState, ScheduleState
from harebell.storage.runs import key_arrays, nullable_array
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.store.versions import VersionCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatements:
    """The statements of this module."""

    load_schedules: str
    load_due: str
    load_due_of: str
    find_pending: str
    lock_runs: str
    find_results: str
    find_counted: str
    find_unstaged_by_pause: str
    find_schedules: str
    find_foreign: str
    find_awaiting: str
    save_states: str
    mark_next_errored: str


_COLUMNS: Final = """
SELECT s.schedule_id, s.version, s.state, s.reason, s.next_at, s.planned_until, s.changed_at,
       s.dispatched, s.open_runs, s.awaited_run, s.consecutive_failures, s.paused_until,
       s.pending_version, s.pending_at, s.skipped_times, s.executions, s.failures, s.last_run
"""
# The last number includes versions that never became active.
_LAST_NUMBER: Final = """, (SELECT max(v.version) FROM schedule_versions v
    WHERE v.schedule_id = s.schedule_id) AS last_number
"""
# A pause and a new version unstage runs, which planning may stage again.
_IS_UNSTAGED: Final = """CASE WHEN r.state = 'cancelled' AND r.attempt = 0
            AND r.reason IN ('superseded', 'paused') THEN true ELSE false END AS is_unstaged
"""
# A state filter must agree with the visible state: a schedule with an open run is not completed.
_HAS_OPEN_RUN: Final = """EXISTS (
    SELECT FROM unnest(t.open_runs) AS o(at)
    WHERE (SELECT r.finished_at IS NULL FROM runs r
           WHERE r.scheduled_for = o.at AND r.schedule_id = t.schedule_id))
"""
_RUNS_OF_KEYS: Final = """
FROM unnest($1::timestamptz[], $2::uuid[]) AS t(scheduled_for, schedule_id)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
"""
_KEYS: Final = "SELECT r.scheduled_for, r.schedule_id" + _RUNS_OF_KEYS

# A staging pass creates no version and needs no other number.
_LOAD_DUE: Final = (
    _COLUMNS
    + """, s.version AS last_number
FROM schedule_state s WHERE s.next_at > $3 AND s.next_at <= $1{}
ORDER BY s.next_at LIMIT $2 FOR UPDATE SKIP LOCKED
"""
)

STATEMENTS: Final = ScheduleStatements(
    load_schedules=_COLUMNS
    + _LAST_NUMBER
    + """FROM schedule_state s WHERE s.schedule_id = ANY($1) ORDER BY s.schedule_id FOR UPDATE
""",
    load_due=_LOAD_DUE.format(""),
    # Only the row in `schedules` names the tenant, so a pass without deferred tenants omits this.
    load_due_of=_LOAD_DUE.format("""
  AND ((SELECT t.tenant FROM schedules t WHERE t.id = s.schedule_id) = ANY($4)) = $5"""),
    # A separate statement, because a statement that waits for a lock reads other tables as they
    # were before the wait. An index contains the pending versions alone.
    find_pending="""
SELECT schedule_id, version FROM schedule_versions
WHERE schedule_id = ANY($1) AND status = 'pending' ORDER BY schedule_id, effective_at
""",
    lock_runs="""
SELECT r.scheduled_for, r.schedule_id, r.state, r.attempt, r.seq, r.due_at, r.version,
       r.lease_holder, r.origin, r.finished_at, r.started_at, r.replay_number,
       CASE WHEN r.stop_requested_at IS NOT NULL
            THEN coalesce(r.reason, 'cancelled') END AS stop_reason,
       """
    + _IS_UNSTAGED
    + _RUNS_OF_KEYS
    + "ORDER BY r.scheduled_for, r.schedule_id FOR UPDATE OF r",
    find_results="SELECT t.k, r.state, r.attempt, "
    + _IS_UNSTAGED
    + """FROM unnest($1::timestamptz[], $2::uuid[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
""",
    find_counted=_KEYS
    + """WHERE CASE WHEN r.origin IS NULL AND NOT (r.state = 'cancelled' AND r.attempt = 0)
           THEN true ELSE false END
""",
    find_unstaged_by_pause=_KEYS
    + """WHERE CASE WHEN r.state = 'cancelled' AND r.attempt = 0 AND r.reason = 'paused'
            AND r.origin IS NULL AND r.replay_number = 0
           THEN true ELSE false END
""",
    find_schedules="""
SELECT s.id FROM schedules s JOIN schedule_state t ON t.schedule_id = s.id
WHERE s.tenant = $1 AND ($2::text IS NULL OR s.tags @> ARRAY[$2])
  AND ($3::text IS NULL OR s.owner = $3) AND ($4::text IS NULL OR s.name = $4)
  AND t.state <> 'deleted'
  AND ($5::text IS NULL
       OR t.state = $5 AND ($5 <> 'completed' OR NOT """
    + _HAS_OPEN_RUN
    + """) OR $5 = 'active' AND t.state = 'completed' AND """
    + _HAS_OPEN_RUN
    + """)
ORDER BY s.id LIMIT $6
""",
    # A lock of a foreign row would delay its tenant until the end of the transaction.
    find_foreign="""
SELECT s.id FROM unnest($1::uuid[], $2::text[]) AS t(id, tenant)
JOIN schedules s ON s.id = t.id WHERE s.tenant <> t.tenant
""",
    find_awaiting="""
SELECT schedule_id FROM schedule_state WHERE awaited_run IS NOT NULL AND state = 'active'
ORDER BY schedule_id LIMIT $1
""",
    save_states="""
INSERT INTO schedule_state (schedule_id, version, state, reason, next_at, planned_until,
                            changed_at, dispatched, open_runs, awaited_run,
                            consecutive_failures, paused_until, pending_version, pending_at,
                            skipped_times, executions, failures, last_run)
SELECT t.id, t.version, t.state, t.reason, t.next_at, t.planned_until, t.changed_at,
       t.dispatched, string_to_array(t.open_runs, ' ')::timestamptz[], t.awaited_run,
       t.consecutive_failures, t.paused_until, t.pending_version, t.pending_at,
       string_to_array(t.skipped_times, ' ')::timestamptz[], t.executions, t.failures, t.last_run
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::timestamptz[],
            $6::timestamptz[], $7::timestamptz[], $8::int[], $9::text[], $10::timestamptz[],
            $11::int[], $12::timestamptz[], $13::int[], $14::timestamptz[], $15::text[],
            $16::int[], $17::int[], $18::timestamptz[])
     AS t(id, version, state, reason, next_at, planned_until, changed_at, dispatched, open_runs,
          awaited_run, consecutive_failures, paused_until, pending_version, pending_at,
          skipped_times, executions, failures, last_run)
ON CONFLICT (schedule_id) DO UPDATE SET
    version = excluded.version, state = excluded.state, reason = excluded.reason,
    next_at = excluded.next_at, planned_until = excluded.planned_until,
    changed_at = excluded.changed_at, dispatched = excluded.dispatched,
    open_runs = excluded.open_runs, awaited_run = excluded.awaited_run,
    consecutive_failures = excluded.consecutive_failures,
    paused_until = excluded.paused_until, pending_version = excluded.pending_version,
    pending_at = excluded.pending_at, skipped_times = excluded.skipped_times,
    executions = excluded.executions, failures = excluded.failures, last_run = excluded.last_run
""",
    mark_next_errored="""
UPDATE schedule_state SET state = 'errored', next_at = NULL, reason = $2
WHERE schedule_id = (SELECT schedule_id FROM schedule_state WHERE next_at <= $1
                     ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING schedule_id
""",
)


async def find_schedules(
    connection: asyncpg.Connection, tenant: str, filter_: ScheduleFilter, *, limit: int
) -> list[UUID]:
    """Return the schedules that match the filter. The caller has begun a transaction.

    A generic plan reads every schedule, so the database plans this statement for its filter.
    """
    await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
    rows = await connection.fetch(
        STATEMENTS.find_schedules,
        tenant,
        filter_.tag,
        filter_.owner,
        filter_.name,
        filter_.state,
        limit,
    )
    await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    return [row["id"] for row in rows]


async def find_foreign(
    connection: asyncpg.Connection, named: Collection[tuple[str, UUID]]
) -> set[UUID]:
    """Return the schedules that belong to another tenant than the one that named them."""
    if not named:
        return set()
    tenants, ids = map(list, zip(*named, strict=True))
    rows = await connection.fetch(STATEMENTS.find_foreign, ids, tenants)
    return {row["id"] for row in rows}


async def load_unit_of_work(
    connection: asyncpg.Connection,
    versions: VersionCache,
    schedule_ids: Iterable[UUID],
    *,
    named_runs: Iterable[RunKey] = (),
) -> UnitOfWork:
    """Lock the schedules, their open runs and the named runs in key order, and load them."""
    ordered = sorted(set(schedule_ids), key=int)
    rows = await connection.fetch(STATEMENTS.load_schedules, ordered)
    records = await _records(connection, versions, rows)
    keys = {RunKey(time, record.id) for record in records for time in record.open_runs}
    unit = UnitOfWork(schedules={record.id: record for record in records})
    keys.update(named_runs)
    locked = await connection.fetch(STATEMENTS.lock_runs, *key_arrays(sorted(keys))) if keys else []
    for row in locked:
        run = _locked_run(row)
        runs = unit.open_runs if run.finished_at is None else unit.ended_runs
        runs[run.key] = run
    for record in records:
        times = (time for time in record.open_runs if RunKey(time, record.id) in unit.ended_runs)
        unit.schedules[record.id] = record._replace(ended_runs=frozenset(times))
    return unit


class TenantFilter(NamedTuple):
    """The schedules of some tenants, or the schedules of every other tenant."""

    tenants: Sequence[str]
    are_included: bool


async def load_due(
    connection: asyncpg.Connection,
    versions: VersionCache,
    until: datetime,
    *,
    limit: int,
    after: datetime = EARLIEST,
    plan_until: datetime | None = None,
    only: TenantFilter | None = None,
) -> list[ScheduleRecord]:
    """Lock and load the schedules with a next time in (after, until], `only` of some tenants.

    The statement skips schedules that another ticker has locked.
    A record has all pending versions if the first one takes effect up to `plan_until`, which is
    `until` by default, and otherwise only the first one.
    """
    statement = STATEMENTS.load_due if only is None else STATEMENTS.load_due_of
    rows = await connection.fetch(statement, until, limit, after, *(only or ()))
    return await _records(connection, versions, rows, plan_until=plan_until or until)


async def _records(
    connection: asyncpg.Connection,
    versions: VersionCache,
    rows: Sequence[asyncpg.Record],
    *,
    plan_until: datetime = LATEST,
) -> list[ScheduleRecord]:
    in_force = [(row["schedule_id"], row["version"]) for row in rows]
    found = await _find_pending(connection, rows, plan_until)
    pending = [found.get(row["schedule_id"], []) for row in rows]
    known = await versions.load(connection, in_force + [key for keys in pending for key in keys])
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
            pending=tuple(known[each] for each in keys),
            skipped_times=tuple(row["skipped_times"]),
            last_number=row["last_number"],
            executions=row["executions"],
            failures=row["failures"],
            last_run=row["last_run"],
        )
        for key, keys, row in zip(in_force, pending, rows, strict=True)
    ]


async def _find_pending(
    connection: asyncpg.Connection, rows: Sequence[asyncpg.Record], plan_until: datetime
) -> dict[UUID, list[tuple[UUID, int]]]:
    """Return the keys of the pending versions by schedule, in the order of their effective times.

    Return only the first key of a schedule whose pending versions take effect after `plan_until`.
    """
    with_pending = [row for row in rows if row["pending_version"] is not None]
    found = {
        row["schedule_id"]: [(row["schedule_id"], row["pending_version"])] for row in with_pending
    }
    ids = [row["schedule_id"] for row in with_pending if row["pending_at"] <= plan_until]
    if ids:
        found |= {id_: [] for id_ in ids}
        for row in await connection.fetch(STATEMENTS.find_pending, ids):
            found[row["schedule_id"]].append((row["schedule_id"], row["version"]))
    return found


def _locked_run(row: asyncpg.Record) -> LockedRun:
    return LockedRun(
        key=RunKey(row["scheduled_for"], row["schedule_id"]),
        state=RunState(row["state"]),
        attempt=row["attempt"],
        seq=row["seq"],
        due_at=row["due_at"],
        version=row["version"],
        lease_holder=row["lease_holder"],
        is_from_recurrence=row["origin"] is None and row["replay_number"] == 0,
        has_started=row["started_at"] is not None,
        stop_reason=row["stop_reason"],
        is_replayed=row["replay_number"] > 0,
        finished_at=row["finished_at"],
        is_unstaged=row["is_unstaged"],
    )


async def find_ended(
    connection: asyncpg.Connection, keys: Sequence[RunKey]
) -> dict[RunKey, RunResult | None]:
    """Return the runs that have ended, with their results. A run without a row has no result."""
    if not keys:
        return {}
    ordered = sorted(keys)
    ended: dict[RunKey, RunResult | None] = dict.fromkeys(ordered)
    for row in await connection.fetch(STATEMENTS.find_results, *key_arrays(ordered)):
        key = ordered[row["k"] - 1]
        result = RunResult(RunState(row["state"]), row["attempt"], row["is_unstaged"])
        if result.has_ended:
            ended[key] = result
        else:
            del ended[key]
    return ended


async def find_counted(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> set[RunKey]:
    """Return the runs of the recurrence that were not cancelled before their first attempt."""
    return await _find_keys(connection, STATEMENTS.find_counted, keys)


async def find_unstaged_by_pause(
    connection: asyncpg.Connection, keys: Sequence[RunKey]
) -> set[RunKey]:
    """Return the runs of the recurrence that a pause cancelled before their first attempt."""
    return await _find_keys(connection, STATEMENTS.find_unstaged_by_pause, keys)


async def _find_keys(
    connection: asyncpg.Connection, statement: str, keys: Sequence[RunKey]
) -> set[RunKey]:
    if not keys:
        return set()
    rows = await connection.fetch(statement, *key_arrays(sorted(keys)))
    return {RunKey(row["scheduled_for"], row["schedule_id"]) for row in rows}


async def save_states(connection: asyncpg.Connection, records: Iterable[ScheduleRecord]) -> None:
    """Write the schedule states in key order.

    An array of arrays must be rectangular, so the inner arrays are text.
    """
    ordered = sorted(records, key=lambda record: record.id.int)
    if not ordered:
        return
    await connection.execute(
        STATEMENTS.save_states,
        [record.id for record in ordered],
        [record.version.number for record in ordered],
        [record.state.value for record in ordered],
        nullable_array(record.reason for record in ordered),
        nullable_array(record.next_at for record in ordered),
        [record.planned_until for record in ordered],
        [record.changed_at for record in ordered],
        [record.dispatched for record in ordered],
        [_times_text(record.open_runs) for record in ordered],
        nullable_array(record.awaited_run for record in ordered),
        [record.consecutive_failures for record in ordered],
        nullable_array(record.paused_until for record in ordered),
        nullable_array(record.pending[0].number if record.pending else None for record in ordered),
        nullable_array(record.pending_at for record in ordered),
        [_times_text(record.skipped_times) for record in ordered],
        [record.executions for record in ordered],
        [record.failures for record in ordered],
        nullable_array(record.last_run for record in ordered),
    )


def _times_text(times: Iterable[datetime]) -> str:
    return " ".join(time.isoformat() for time in times)


async def find_awaiting(pool: asyncpg.Pool, limit: int) -> list[UUID]:
    """Return active schedules that wait for the end of a run.

    A stopped schedule is not among them, because it is planned when it continues.
    """
    rows = await pool.fetch(STATEMENTS.find_awaiting, limit)
    return [row["schedule_id"] for row in rows]


async def mark_next_errored(pool: asyncpg.Pool, until: datetime, reason: str) -> UUID | None:
    """Mark the schedule with the earliest next time as errored, without reading its version.

    The version may be the cause of the error.
    """
    schedule_id: UUID | None = await pool.fetchval(STATEMENTS.mark_next_errored, until, reason)
    return schedule_id
