"""The SQL of the forecast: the recorded and staged runs, and the schedules with times to plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg
from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Text, Uuid

from harebell.contract.errors import TooExpensive
from harebell.contract.queries import ForecastGrouping
from harebell.domain.planned_times import PlannedSchedule
from harebell.domain.recurrence import spend_freely
from harebell.domain.run_states import ScheduleState
from harebell.domain.timetables import OMITTED_FIELDS, DueTimesCache, Timetable, Timetables
from harebell.intake.queries.forecast import (
    HOUR,
    NO_NAME,
    ForecastCounts,
    ForecastHours,
    HourRecord,
)
from harebell.intake.queries.store import IntakeStore, fetch
from harebell.intake.queries.views import Row
from harebell.runtime.clock import monotonic
from harebell.runtime.computations import Computations, Spend
from harebell.storage.engine import MAY_IDLE, compile_statement

MAX_RECORDED: Final = 500_000  # runs, the latest of the range
MAX_SCHEDULES: Final = 100_000  # with a time to plan in the range, the earliest first
MAX_COMPUTED: Final = 300_000  # times of cron expressions and of jitter
MAX_COUNT_TIME: Final = 6.0  # seconds; the client waits 10 s for a response
BATCH: Final = 500  # schedules that are read at once
MAX_JITTER: Final = timedelta(days=1)  # of a run in the record; a longer one is rare
# A pause moves the next time of a schedule back by a horizon.
NEXT_TIME_MARGIN: Final = timedelta(minutes=5)

_ISOLATION: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_GROUP_COLUMNS: Final = {
    ForecastGrouping.POOL: "counted.pool",
    ForecastGrouping.TENANT: "counted.tenant",
    ForecastGrouping.TAG: "tag.name",
}
# A person decides when a replay starts, so its lateness does not count.
# A blackout may hold back an open run for longer than `MAX_JITTER`. The second part contains such
# runs, and no time of theirs decides which hours are complete.
_RECORD: Final = """
WITH counted AS MATERIALIZED (
    (SELECT r.scheduled_for, r.schedule_id, r.pool, r.tenant, r.due_at,
            CAST(floor(extract(epoch FROM r.due_at - :start) / 3600) AS int) AS hour,
            CASE WHEN r.replay_number = 0 AND r.attempt = 1 AND r.due_at <= :now
                 THEN r.started_at END AS started_at
     FROM runs r
     WHERE r.scheduled_for >= :first AND r.scheduled_for < :end
       AND r.due_at >= :start AND r.due_at < :end
       AND (r.attempt > 0 OR r.finished_at IS NULL)
       AND (CAST(:tenant AS text) IS NULL OR r.tenant = :tenant)
     ORDER BY r.scheduled_for DESC LIMIT :max_runs)
    UNION ALL
    (SELECT NULL, r.schedule_id, r.pool, r.tenant, r.due_at,
            CAST(floor(extract(epoch FROM r.due_at - :start) / 3600) AS int), NULL
     FROM runs r
     WHERE r.finished_at IS NULL AND r.due_at >= :start AND r.due_at < :end
       AND r.scheduled_for < :first
       AND (CAST(:tenant AS text) IS NULL OR r.tenant = :tenant)
     LIMIT :max_runs)
)
SELECT hour, NULL AS name, count(*) AS runs, count(scheduled_for) AS ordered,
       min(scheduled_for) AS earliest,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - due_at)) * 1000
           AS late_p50_ms,
       percentile_disc(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - due_at)) * 1000
           AS late_p99_ms
FROM counted GROUP BY hour
UNION ALL
SELECT hour, {group}, count(*), NULL, NULL, NULL, NULL
FROM counted {join} GROUP BY 1, 2
"""
_TAGS: Final = """
LEFT JOIN schedules s ON s.id = counted.schedule_id
CROSS JOIN LATERAL unnest(CASE WHEN coalesce(cardinality(s.tags), 0) = 0 THEN ARRAY['']
                               ELSE s.tags END) AS tag(name)
"""
_PLANNED: Final = text("""
SELECT t.schedule_id, t.version, t.state, t.next_at, t.planned_until, t.dispatched, t.paused_until,
       t.awaited_run, CASE WHEN t.pending_at <= :end THEN t.pending_version END AS pending_version,
       t.skipped_times,
       CASE WHEN t.pending_version IS NOT NULL OR t.state <> 'active' THEN t.open_runs END
           AS open_runs,
       s.tenant, s.tags, v.effective_at, v.anchor_at,
       CAST(CAST(v.definition AS jsonb) - :omitted AS text) AS policy
FROM schedule_state t
JOIN schedules s ON s.id = t.schedule_id
JOIN schedule_versions v ON v.schedule_id = t.schedule_id AND v.version = t.version
WHERE (t.next_at <= :last OR t.awaited_run IS NOT NULL AND t.state = 'active')
  AND (CAST(:tenant AS text) IS NULL OR s.tenant = :tenant)
ORDER BY t.next_at LIMIT :max_schedules
""").bindparams(bindparam("omitted", type_=ARRAY(Text)))
_PENDING: Final = text("""
SELECT schedule_id, effective_at, anchor_at,
       CAST(CAST(definition AS jsonb) - :omitted AS text) AS policy
FROM schedule_versions
WHERE schedule_id = ANY(:ids) AND status = 'pending' ORDER BY schedule_id, effective_at
""").bindparams(bindparam("omitted", type_=ARRAY(Text)), bindparam("ids", type_=ARRAY(Uuid)))


class ForecastStore:
    """The tables that the forecast reads, in one snapshot. The caller has the turn of a tenant."""

    def __init__(self, store: IntakeStore, turn: Computations) -> None:
        self._store = store
        self._turn = turn

    async def count(
        self, hours: ForecastHours, by: ForecastGrouping, tenant: str | None, *, now: datetime
    ) -> ForecastCounts:
        """Return the counts of one tenant, or of all tenants with None.

        Raise `DatabaseUnavailable`, or `Rejected` if a statement takes too long.
        """
        counts = ForecastCounts(hours=hours)
        async with self._store.connect(_ISOLATION, MAY_IDLE) as connection:
            await self._count_record(connection, counts, by, tenant=tenant, now=now)
            if hours.end > now:
                await self._count_planned(connection, counts, by, tenant=tenant, now=now)
        return counts

    async def _count_record(
        self,
        connection: asyncpg.Connection,
        counts: ForecastCounts,
        by: ForecastGrouping,
        *,
        tenant: str | None,
        now: datetime,
    ) -> None:
        """Count the runs that have an attempt or wait, by the hour of their due time."""
        hours = counts.hours
        join = _TAGS if by is ForecastGrouping.TAG else ""
        statement = text(_RECORD.format(group=_GROUP_COLUMNS[by], join=join))
        values = {
            "start": hours.start,
            "end": hours.end,
            "first": hours.start - MAX_JITTER,
            "now": now,
            "tenant": tenant,
            "max_runs": MAX_RECORDED,
        }
        total, earliest = 0, hours.end
        for row in await fetch(connection, statement.bindparams(**values)):
            counts.add_record(
                HourRecord(
                    hour=row["hour"],
                    name=row["name"],
                    runs=row["runs"],
                    late_p50_ms=_rounded(row["late_p50_ms"]),
                    late_p99_ms=_rounded(row["late_p99_ms"]),
                )
            )
            if row["name"] is None and row["ordered"]:
                total, earliest = total + row["ordered"], min(earliest, row["earliest"])
        if total >= MAX_RECORDED:
            counts.first_complete = min(hours.count, max(0, (earliest - hours.start) // HOUR + 1))

    async def _count_planned(
        self,
        connection: asyncpg.Connection,
        counts: ForecastCounts,
        by: ForecastGrouping,
        *,
        tenant: str | None,
        now: datetime,
    ) -> None:
        total, bound = 0, _Bound(until=monotonic() + MAX_COUNT_TIME)
        bound.cache, shared = DueTimesCache(spend=bound.spend), Timetables(spend=bound.spend)
        values = {
            "end": counts.hours.end,
            "last": counts.hours.end + NEXT_TIME_MARGIN,
            "tenant": tenant,
            "max_schedules": MAX_SCHEDULES,
            "omitted": list(OMITTED_FIELDS),
        }
        sql, parameters = compile_statement(_PLANNED.bindparams(**values))
        await connection.execute(f"DECLARE planned NO SCROLL CURSOR FOR {sql}", *parameters)
        while rows := await connection.fetch(f"FETCH {BATCH} FROM planned"):
            pending = await _pending(connection, rows)
            schedules = [
                _Schedule(
                    _schedule(row, pending.get(row["schedule_id"], ()), shared),
                    row["tenant"],
                    _names(row, by),
                )
                for row in rows
            ]
            counted = await self._count_batch(counts, schedules, bound, now=now)
            total += counted
            if counted < len(rows) or total >= MAX_SCHEDULES:
                counts.notes.append(
                    f"The forecast counts only the {total} schedules with the earliest next times."
                )
                break

    async def _count_batch(
        self,
        counts: ForecastCounts,
        schedules: Sequence["_Schedule"],
        bound: "_Bound",
        *,
        now: datetime,
    ) -> int:
        """Return the number of schedules that are counted within the bound.

        Other tenants compute between two turns, and the cache keeps what a turn has computed.
        """
        counted = 0
        while counted < len(schedules) and not bound.is_reached:
            compute = partial(_count, counts, schedules[counted:], bound=bound, now=now)
            counted += await self._turn.run(compute)
        return counted


class _Schedule(NamedTuple):
    """A schedule with its tenant and its groups."""

    planned: PlannedSchedule
    tenant: str
    names: list[str] | None


@dataclass(slots=True)
class _Bound:
    """The bound of one forecast, and within it that of the present turn."""

    until: float  # monotonic time
    cache: DueTimesCache = field(default_factory=DueTimesCache)
    spend_turn: Spend = spend_freely

    @property
    def is_reached(self) -> bool:
        return monotonic() > self.until or self.cache.computed > MAX_COMPUTED

    def spend(self) -> None:
        """Raise `TooExpensive` at the end of the turn or of the forecast."""
        if self.is_reached:
            raise TooExpensive(f"The forecast must need at most {MAX_COUNT_TIME:g} s.")
        self.spend_turn()


def _count(
    counts: ForecastCounts,
    schedules: Sequence[_Schedule],
    spend: Spend,
    *,
    bound: _Bound,
    now: datetime,
) -> int:
    """Count schedules until the bound or the end of the turn. Return their number."""
    bound.spend_turn = spend
    for number, (planned, tenant, names) in enumerate(schedules):
        try:
            bound.spend()
            counts.add_schedule(planned, names, tenant=tenant, now=now, cache=bound.cache)
        except TooExpensive:
            return number
    return len(schedules)


async def _pending(connection: asyncpg.Connection, rows: Iterable[Row]) -> dict[UUID, list[Row]]:
    """Return the pending versions by schedule, in the order of their effective times."""
    ids = [row["schedule_id"] for row in rows if row["pending_version"] is not None]
    found: dict[UUID, list[Any]] = {}
    if ids:
        values = {"ids": ids, "omitted": list(OMITTED_FIELDS)}
        for row in await fetch(connection, _PENDING.bindparams(**values)):
            found.setdefault(row["schedule_id"], []).append(row)
    return found


def _schedule(row: Row, pending: Iterable[Row], shared: Timetables) -> PlannedSchedule:
    versions = (_timetable(each, shared) for each in (row, *pending))
    return PlannedSchedule(
        tuple(each for each in versions if each is not None),
        ScheduleState(row["state"]),
        row["planned_until"],
        row["next_at"],
        row["dispatched"],
        row["paused_until"],
        row["awaited_run"],
        row["skipped_times"],
        row["open_runs"] or (),
    )


def _timetable(row: Row, shared: Timetables) -> Timetable | None:
    since = row["effective_at"]
    anchor = row["anchor_at"] or since
    return shared.create(row["schedule_id"], row["policy"], since=since, anchor=anchor)


def _names(row: Row, by: ForecastGrouping) -> list[str] | None:
    """Return the groups of a schedule, or None for the pools of its versions."""
    match by:
        case ForecastGrouping.POOL:
            return None
        case ForecastGrouping.TENANT:
            return [row["tenant"]]
        case ForecastGrouping.TAG:
            return list(row["tags"]) or [NO_NAME]


def _rounded(milliseconds: Any) -> float | None:  # noqa: ANN401  # a number of the driver
    return None if milliseconds is None else round(float(milliseconds), 1)
