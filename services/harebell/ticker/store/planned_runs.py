"""The SQL of planned runs: staged runs, schedules with a time to plan, and their timetables."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from harebell.contract.amqp_names import Lane, lane_of
from harebell.domain.planned_times import PlannedSchedule
from harebell.domain.run_states import ScheduleState
from harebell.domain.timetables import OMITTED_FIELDS, Timetable, Timetables
from harebell.storage.engine import MAY_IDLE

MAX_STAGED: Final = 500_000  # open rows that one refresh reads, in groups of one second
MAX_NAMED: Final = 10_000  # schedules whose pools a refresh reads; more have statistics

VersionKey = tuple[UUID, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRunStatements:
    """The statements of this module."""

    count_staged: str
    find_pools: str
    find_planned: str
    find_awaiting: str
    find_pending: str
    load_timetables: str


_COLUMNS: Final = """
SELECT schedule_id, version, state, next_at, planned_until, dispatched, paused_until, awaited_run,
       CASE WHEN pending_at <= $1 THEN pending_version END AS pending_version, skipped_times,
       CASE WHEN pending_version IS NOT NULL OR state <> 'active' THEN open_runs END AS open_runs
FROM schedule_state
"""

STATEMENTS: Final = PlannedRunStatements(
    # A retry has a due time in the past. A claimed run that is not due yet is planned too.
    count_staged="""
WITH open_runs AS (
    (SELECT pool, lane, state, due_at, next_attempt_at FROM runs
     WHERE finished_at IS NULL AND due_at > $1 AND due_at <= $2 LIMIT $3)
    UNION ALL
    (SELECT pool, lane, state, due_at, next_attempt_at FROM runs
     WHERE finished_at IS NULL AND due_at <= $1 LIMIT $3)
), planned AS (
    SELECT pool, lane, coalesce(next_attempt_at, due_at) AS at FROM open_runs
    WHERE state IN ('staged', 'retrying', 'running')
)
SELECT pool, lane, ceil(extract(epoch FROM at))::int8 AS second, count(*) AS runs
FROM planned WHERE at > $1 AND at <= $2 GROUP BY 1, 2, 3
""",
    # A scan of a large table every minute would disturb others, and its statistics name the pools.
    find_pools="""
SELECT pool FROM (
    SELECT DISTINCT pool FROM (
        SELECT pool FROM schedules
        WHERE (SELECT reltuples <= $1 FROM pg_class WHERE oid = 'public.schedules'::regclass)
        ORDER BY id LIMIT $1
    ) AS few
    UNION
    SELECT unnest(most_common_vals::text::text[]) FROM pg_stats
    WHERE schemaname = 'public' AND tablename = 'schedules' AND attname = 'pool'
) AS pools LIMIT $2
""",
    find_planned=_COLUMNS + "WHERE next_at <= $1 ORDER BY next_at LIMIT $2",
    # A sequential schedule has no next time while its run is open.
    find_awaiting=_COLUMNS
    + """WHERE awaited_run IS NOT NULL AND state = 'active' AND coalesce(next_at > $1, true)
  AND schedule_id > $3
ORDER BY schedule_id LIMIT $2
""",
    find_pending="""
SELECT schedule_id, version FROM schedule_versions
WHERE schedule_id = ANY($1) AND status = 'pending' ORDER BY schedule_id, effective_at
""",
    load_timetables="""
SELECT v.schedule_id, v.version, v.effective_at, v.anchor_at,
       (v.definition::jsonb - $3::text[])::text AS policy
FROM unnest($1::uuid[], $2::int[]) AS t(schedule_id, version)
JOIN schedule_versions v USING (schedule_id, version)
""",
)

FIRST_ID: Final = UUID(int=0)
DECLARE: Final = "DECLARE planned NO SCROLL CURSOR FOR"


@asynccontextmanager
async def open_snapshot(pool: asyncpg.Pool) -> AsyncIterator[asyncpg.Connection]:
    """Open a transaction that reads one snapshot, so that each run is planned or staged."""
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await connection.execute(MAY_IDLE)
        yield connection


async def count_staged(
    connection: asyncpg.Connection, now: datetime, until: datetime
) -> dict[tuple[str, str], dict[int, int]]:
    """Return the number of open runs due in (now, until], by pool and lane and by second.

    A run counts in the second [s since the epoch] that ends at or after its due time.
    """
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for row in await connection.fetch(STATEMENTS.count_staged, now, until, MAX_STAGED):
        counts.setdefault((row["pool"], row["lane"]), {})[row["second"]] = row["runs"]
    return counts


async def find_pools(connection: asyncpg.Connection, limit: int) -> list[str]:
    """Return the pools of stored schedules, in any state.

    Of many schedules, only the pools that the last `ANALYZE` found often are known.
    """
    rows = await connection.fetch(STATEMENTS.find_pools, MAX_NAMED, limit)
    return [row["pool"] for row in rows]


async def read_planned(
    connection: asyncpg.Connection, until: datetime, *, limit: int, batch: int
) -> AsyncIterator[Sequence[asyncpg.Record]]:
    """Yield the states of the schedules with a time to plan up to `until`, the earliest first.

    Schedules that await the end of a run come first. We use no cursor of asyncpg, which would name
    its statement: behind a pooler, another client may have used that name in the same session. At
    the end of the transaction, this cursor is closed.
    """
    after, left = FIRST_ID, limit
    while rows := await connection.fetch(STATEMENTS.find_awaiting, until, min(batch, left), after):
        yield rows
        after, left = rows[-1]["schedule_id"], left - len(rows)
        if len(rows) < batch:
            break
    await connection.execute(f"{DECLARE} {STATEMENTS.find_planned}", until, limit)
    while rows := await connection.fetch(f"FETCH {batch:d} FROM planned"):
        yield rows
        if len(rows) < batch:
            break


class TimetableStore:
    """The timetables in memory, by schedule and version."""

    def __init__(self) -> None:
        self._shared = Timetables()
        self._timetables: dict[VersionKey, Timetable | None] = {}
        self._used: set[VersionKey] = set()

    def __len__(self) -> int:
        return len(self._timetables)

    async def schedules(
        self, connection: asyncpg.Connection, rows: Sequence[asyncpg.Record]
    ) -> list[PlannedSchedule]:
        """Return the schedules of rows of `read_planned`, without those without a timetable."""
        pending = await _find_pending(connection, rows)
        keys = [
            [(row["schedule_id"], row["version"]), *pending.get(row["schedule_id"], ())]
            for row in rows
        ]
        await self._load(connection, [key for each in keys for key in each])
        schedules = []
        for row, versions in zip(rows, keys, strict=True):
            found = (self._timetables.get(key) for key in versions)
            timetables = tuple(each for each in found if each is not None)
            if timetables:
                schedules.append(_schedule(row, timetables))
        return schedules

    def discard_unused(self) -> None:
        """Remove the timetables that no call has used since the last call of this method."""
        used = self._used  # a failed statement leaves keys without a timetable
        self._timetables = {key: each for key, each in self._timetables.items() if key in used}
        self._used = set()

    async def _load(self, connection: asyncpg.Connection, keys: Sequence[VersionKey]) -> None:
        self._used.update(keys)
        missing = [key for key in keys if key not in self._timetables]
        if not missing:
            return
        ids, numbers = zip(*missing, strict=True)
        rows = await connection.fetch(
            STATEMENTS.load_timetables, ids, numbers, list(OMITTED_FIELDS)
        )
        for row in rows:
            since = row["effective_at"]
            self._timetables[row["schedule_id"], row["version"]] = self._shared.create(
                row["schedule_id"], row["policy"], since=since, anchor=row["anchor_at"] or since
            )


def lane_of_timetable(timetable: Timetable) -> tuple[str, str]:
    """Return the pool and the lane of the runs of a version."""
    lane: Lane = lane_of(timetable.policy.priority)
    return timetable.policy.pool, lane.value


async def _find_pending(
    connection: asyncpg.Connection, rows: Sequence[asyncpg.Record]
) -> Mapping[UUID, list[VersionKey]]:
    """Return the keys of the pending versions in the order of their effective times."""
    ids = [row["schedule_id"] for row in rows if row["pending_version"] is not None]
    found: dict[UUID, list[VersionKey]] = {id_: [] for id_ in ids}
    if ids:
        for row in await connection.fetch(STATEMENTS.find_pending, ids):
            found[row["schedule_id"]].append((row["schedule_id"], row["version"]))
    return found


def _schedule(row: asyncpg.Record, timetables: tuple[Timetable, ...]) -> PlannedSchedule:
    return PlannedSchedule(
        timetables,
        ScheduleState(row["state"]),
        row["planned_until"],
        row["next_at"],
        row["dispatched"],
        row["paused_until"],
        row["awaited_run"],
        row["skipped_times"],
        row["open_runs"] or (),
    )
