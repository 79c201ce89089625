"""A soak of the retention: days of history, a pass of the ticker after each, and live runs.

`python -m tests.tools.retention_soak --runs 10000000 --days 20` starts a private PostgreSQL.
For each day, it inserts the runs of the day in bulk, and a pass archives and removes them.
The database therefore needs the space of one day, and `sizes` shows whether it stays bounded.
Live runs are staged during the passes, and the longest statement shows their effect.
With `--days-per-pass N`, one pass removes N days, as after an outage of all tickers.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
from tests.fakes.history import History, insert_history
from tests.fakes.stored_schedules import schedule_ids
from tests.rig.servers import Servers, as_role, server_directory

from harebell.contract.ids import RunKey
from harebell.domain.run_states import NewRun, Placement
from harebell.domain.tenant_policy import TenantPolicies
from harebell.runtime.archive import list_days, read_day, verify_part
from harebell.runtime.clock import monotonic
from harebell.runtime.settings import PoolBounds, TickerSettings
from harebell.storage.engine import open_pool
from harebell.storage.runs import staging
from harebell.ticker.retention import BATCH, Retention

SCHEDULES: Final = 1_000
CHUNK: Final = 250_000  # runs of one statement
LIVE_PAUSE: Final = 0.02  # seconds between two batches of live runs
LIVE_BATCH: Final = 10  # runs
SIZES: Final = """
SELECT split_part(c.relname, '_', 1) AS name, count(*) AS partitions,
       sum(pg_table_size(c.oid))::bigint AS table_bytes,
       sum(pg_indexes_size(c.oid))::bigint AS index_bytes,
       sum(coalesce(n_dead_tup, 0))::bigint AS dead_rows
FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE c.relkind = 'r' AND c.relname ~ '^(retired_)?(runs|attempts)_' GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs of the history, which are even over its days, and the days of each pass."""

    runs: int
    days: int
    days_per_pass: int = 1

    def passes(self) -> Iterator[list[int]]:
        """Yield the numbers of the days before each pass."""
        numbers = list(range(self.days))
        yield from (
            numbers[start : start + self.days_per_pass]
            for start in range(0, self.days, self.days_per_pass)
        )


async def soak(servers: Servers, archive: Path, plan: Plan) -> dict[str, Any]:
    """Insert the history and run the passes with live runs beside them. Return the figures."""
    url = await servers.make_database()
    owner = await asyncpg.connect(url, server_settings={"timezone": "UTC"})
    settings = {
        "amqp_url": "amqp://127.0.0.1",
        "database_url": url,
        "run_retention": "1d",
        "archive_dir": archive,
    }
    inserted: list[float] = []
    passed: list[float] = []
    live: list[float] = []
    sizes = [{"days": 0, **await _sizes(owner)}]
    peak = 0
    async with open_pool(
        as_role(url, "ticker"), name="soak", bounds=PoolBounds(max_size=6)
    ) as pool:
        retention = Retention(
            pool=pool,
            settings=TickerSettings.model_validate(settings),
            policies=TenantPolicies.unrestricted(),
            batch=BATCH,
        )
        for days in plan.passes():
            began = monotonic()
            for day in days:
                await _insert(owner, plan, day)
            await owner.execute("ANALYZE runs, attempts")
            inserted.append(monotonic() - began)
            peak = max(peak, (await _sizes(owner))["bytes"])
            passed.append(await _timed_pass(pool, retention, live))
            sizes.append({"days": days[-1] + 1, **await _sizes(owner)})
    archived = [read_day(archive, day) for day in list_days(archive)]
    for each in archived:
        for part in each.parts:
            verify_part(archive, each.day, part)
    figures = {
        "runs": plan.runs,
        "days": plan.days,
        "passes": len(passed),
        "insert_seconds": round(sum(inserted), 1),
        "pass_seconds": round(sum(passed), 1),
        "longest_pass_seconds": round(max(passed), 1),
        "archived_runs": sum(each.count("runs") for each in archived),
        "archived_attempts": sum(each.count("attempts") for each in archived),
        "archive_bytes": sum(each.size for each in archived),
        "remaining_history": await owner.fetchval(
            "SELECT count(*) FROM runs WHERE scheduled_for < now() - interval '2 days'"
        ),
        "live_statements": len(live),
        "live_p99_ms": round(1000 * sorted(live)[int(len(live) * 0.99)], 1),
        "live_max_ms": round(1000 * max(live), 1),
        "peak_bytes": peak,
        "sizes": sizes,
    }
    await owner.close()
    await servers.drop_database(url)
    return figures


async def _timed_pass(pool: asyncpg.Pool, retention: Retention, live: list[float]) -> float:
    """Run one pass beside live runs, and return its seconds."""
    stop = asyncio.Event()
    load = asyncio.create_task(_stage_live_runs(pool, live, stop))
    began = monotonic()
    try:
        await retention.run_pass()
    finally:
        stop.set()
        await load
    return monotonic() - began


async def _insert(owner: asyncpg.Connection, plan: Plan, number: int) -> None:
    """Insert the runs of one day before yesterday."""
    ids = schedule_ids(SCHEDULES)
    day = datetime.now(UTC).date() - timedelta(days=number + 2)
    per_day = plan.runs // plan.days
    chunks = -(-per_day // CHUNK)
    for chunk in range(chunks):
        part = tuple(ids[chunk::chunks])
        await insert_history(owner, History(day=day, ids=part, count=per_day // chunks))


async def _stage_live_runs(pool: asyncpg.Pool, seconds: list[float], stop: asyncio.Event) -> None:
    ids = schedule_ids(LIVE_BATCH)
    placement = Placement("live", 1, "default", "normal", 5)
    while not stop.is_set():
        at = datetime.now(UTC)
        rows = [NewRun(RunKey(at, id_), placement, at, None) for id_ in ids]
        began = monotonic()
        async with pool.acquire() as connection:
            await staging.stage(connection, rows)
        seconds.append(monotonic() - began)
        await asyncio.sleep(LIVE_PAUSE)


async def _sizes(owner: asyncpg.Connection) -> dict[str, Any]:
    """Return the bytes of all tables with runs and attempts, and the parts of each kind."""
    tables = [dict(row) for row in await owner.fetch(SIZES)]
    return {
        "bytes": sum(each["table_bytes"] + each["index_bytes"] for each in tables),
        "tables": tables,
    }


def main(arguments: Sequence[str]) -> None:
    """Run one soak and print its figures."""
    parser = argparse.ArgumentParser(description="Measure a pass of the retention.")
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--days-per-pass", type=int, default=1)
    options = parser.parse_args(arguments)
    if min(options.days, options.days_per_pass) < 1 or options.runs < options.days:
        parser.error("--days and --days-per-pass must be at least 1, and --runs at least --days.")
    plan = Plan(runs=options.runs, days=options.days, days_per_pass=options.days_per_pass)
    with (
        tempfile.TemporaryDirectory(prefix="harebell-soak-") as folder,
        server_directory(Path(folder)) as root,
        Servers.open(root) as servers,
    ):
        archive = Path(folder) / "archive"
        archive.mkdir()
        figures = asyncio.run(soak(servers, archive, plan))
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
