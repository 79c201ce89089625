"""Recurring runs beside a held snapshot: the lateness and the time of each hot statement.

PostgreSQL removes no dead row version that the held snapshot may see, so each hot statement visits
more of them from minute to minute.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any, Final

import asyncpg
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import FULL_HORIZON, Rig, Scale, Wave, start_lateness
from tests.benchmarks.starts import clear, read_starts
from tests.benchmarks.workloads.tenants import restart

SCHEDULES: Final = 1_000
EVERY: Final = timedelta(seconds=2)
RATE: Final = SCHEDULES / EVERY.total_seconds()  # runs a second
DURATION: Final = timedelta(minutes=5)
FULL_DURATION: Final = timedelta(minutes=30)
COMPARED: Final = timedelta(minutes=1)  # at the beginning and at the end of a sample
# The schedules end later than the last minute by more than the time up to which the ticker plans,
# so that it still plans in that minute.
PLANNED_AFTER: Final = timedelta(minutes=3)
MIN_CALLS: Final = 5  # of a statement in each of both minutes
MAX_STATEMENTS: Final = 12  # in the report, those with the most time at the end
MAX_NAME: Final = 48  # characters
MIN_MEAN: Final = 0.05  # milliseconds, below which a ratio means nothing
END_TIMEOUT: Final = 120.0  # seconds until the last run has ended
# A statement that names the partition of its day remains the same statement at midnight.
_STATEMENTS: Final = r"""
SELECT regexp_replace(query, '_\d{8}\M', '_day', 'g') AS query,
       sum(calls)::bigint AS calls, sum(total_exec_time)::float8 AS ms
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND query !~* '^(BEGIN|COMMIT|ROLLBACK|SET|SHOW|RESET|CREATE|ANALYZE|VACUUM)' GROUP BY 1
"""

Times = Mapping[str, tuple[int, float]]  # calls and milliseconds of each statement


async def pinned(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure in turn without and with a held snapshot, with the default horizon."""
    duration = FULL_DURATION if scale.full else DURATION
    horizon, before = rig.horizon, dict(rig.settings)
    rig.horizon = float(FULL_HORIZON.removesuffix("s"))
    connection = await asyncpg.connect(rig.stack.database_url)
    await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    await connection.close()
    restart(rig, HAREBELL_HORIZON=FULL_HORIZON)
    try:
        for _ in range(scale.times):
            p99 = {}
            for name, is_held in (("free", False), ("held", True)):
                figures = await sample(rig, duration, is_held=is_held)
                p99[name] = figures["late_ms"]["p99"]
                report.add("pinned", snapshot=name, rate=RATE, **figures)
            report.add("pinned p99", ratio=round(p99["held"] / p99["free"], 2))
    finally:
        rig.horizon = horizon
        rig.settings.clear()
        restart(rig, **before)


async def sample(rig: Rig, duration: timedelta, *, is_held: bool) -> dict[str, Any]:
    """Return the lateness in the last minute, and the growth of the mean of each statement."""

    def when(_: int, first: Any) -> dict[str, str]:
        end = first + duration + PLANNED_AFTER - EVERY
        return {
            "every": f"{EVERY.total_seconds():g}s",
            "start": first.isoformat(),
            "end": end.isoformat(),
        }

    async with rig.tenant() as tenant:
        database = tenant.ledger
        wave = await rig.load(tenant, SCHEDULES, rate=RATE, when=when)
        holding = held_snapshot(rig) if is_held else nullcontext()
        async with holding:
            first = await times_between(rig, database, wave.first)
            end = wave.first + duration
            await rig.until(end - COMPARED)
            clear(rig.starts)
            last = await times_between(rig, database, end - COMPARED)
            starts = read_starts(rig.starts)
        number = round((duration + PLANNED_AFTER).total_seconds() * RATE)
        whole = Wave(tenant=tenant, number=number, first=wave.first, last=end + PLANNED_AFTER)
        await rig.until(whole.last)
        await rig.drained(whole, within=END_TIMEOUT)
        clear(rig.starts)
        return {
            "n": number,
            "late_ms": start_lateness(starts),
            **growth(first, last),
            **await rig.on_record(whole),
        }


async def times_between(rig: Rig, database: asyncpg.Connection, begin: Any) -> Times:
    """Return the calls and the time of each statement in the minute after `begin`."""
    await rig.until(begin)
    before = await statement_times(database)
    await rig.until(begin + COMPARED)
    after = await statement_times(database)
    return {
        query: (calls - before.get(query, (0, 0.0))[0], ms - before.get(query, (0, 0.0))[1])
        for query, (calls, ms) in after.items()
    }


async def statement_times(database: asyncpg.Connection) -> Times:
    rows = await database.fetch(_STATEMENTS)
    return {row["query"]: (row["calls"], row["ms"]) for row in rows}


def growth(first: Times, last: Times) -> dict[str, Any]:
    """Return the mean milliseconds of each statement in both minutes, and the greatest growth."""
    both = [
        query
        for query, (calls, _) in sorted(last.items(), key=lambda each: -each[1][1])
        if calls >= MIN_CALLS and first.get(query, (0, 0.0))[0] >= MIN_CALLS
    ]
    means = {
        " ".join(query.split())[:MAX_NAME]: [
            round(ms / calls, 3) for calls, ms in (first[query], last[query])
        ]
        for query in both[:MAX_STATEMENTS]
    }
    ratios = [end / max(begin, MIN_MEAN) for begin, end in means.values()]
    return {"max_growth": round(max(ratios, default=0.0), 2), "statement_ms": means}


@asynccontextmanager
async def held_snapshot(rig: Rig) -> AsyncIterator[None]:
    """Hold a snapshot in a transaction that does nothing else."""
    connection = await asyncpg.connect(rig.stack.database_url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM schedule_state")
            yield
    finally:
        await asyncio.wait_for(connection.close(), END_TIMEOUT)
