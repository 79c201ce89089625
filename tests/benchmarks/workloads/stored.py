"""A million stored schedules: the cost of finding and staging the due schedules."""

import asyncio
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

import asyncpg
import orjson
from tests.acceptance.recording_target import Target
from tests.acceptance.schedule_load import ScheduleLoad
from tests.acceptance.stack import Tenant
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale
from tests.rig.polling import until

MILLION: Final = 1_000_000
MEASUREMENTS: Final = 50
BACKLOG: Final = 100_000  # schedules that were due in the last hour
BATCH: Final = 1_000

_SET_BACK: Final = """
UPDATE schedule_state SET next_at = now() - make_interval(secs => 3600 * random())
WHERE schedule_id IN (SELECT schedule_id FROM schedule_state WHERE next_at IS NOT NULL LIMIT $1)
"""
_DUE: Final = f"""
EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
SELECT s.schedule_id, s.version, s.state, s.next_at, s.planned_until, s.open_runs
FROM schedule_state s WHERE s.next_at > '-infinity' AND s.next_at <= now()
ORDER BY s.next_at LIMIT {BATCH} FOR UPDATE SKIP LOCKED
"""  # noqa: S608  # the statement contains only constants
_SIZES: Final = """
SELECT relname, pg_table_size(oid) AS rows, pg_indexes_size(oid) AS indexes FROM pg_class
WHERE relname IN ('schedules', 'schedule_versions', 'schedule_state')
"""


async def stored(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure at the end of all workloads, because the tables remain full."""
    await asyncio.to_thread(rig.stop)
    with Target.open(rig.starts / "calls.jsonl") as target:
        await measure(
            ScheduleLoad(rig.stack, target), report, 10 * MILLION if scale.full else MILLION
        )


async def measure(schedule_load: ScheduleLoad, report: Report, count: int) -> None:
    started_at = asyncio.get_running_loop().time()
    await schedule_load.create(count)
    times = asyncio.get_running_loop().time() - started_at
    assert schedule_load.initial_wave is not None  # `create` sets the wave
    async with schedule_load.tenant() as tenant:
        await tenant.ledger.execute("ANALYZE schedules, schedule_versions, schedule_state")
        sizes = {
            row["relname"]: {"rows": row["rows"] >> 20, "indexes": row["indexes"] >> 20}
            for row in await tenant.ledger.fetch(_SIZES)
        }
        wave = await schedule_load.wave(tenant, count)
        queue_depths = await until(
            schedule_load.delay_queue_depths, what="the message counts of the broker"
        )
        report.add(
            "stored",
            stored=count,
            loaded_s=round(times),
            staged=len(wave.due),
            blocks_with_few=schedule_load.initial_wave.blocks,
            blocks=wave.blocks,
            ticker_mb_with_few=schedule_load.initial_wave.ticker.memory >> 20,
            ticker_mb=wave.ticker.memory >> 20,
            messages_waiting=sum(queue_depths.values()),
            mb=sizes,
            due_query_ms=await due_query(tenant),
        )


async def due_query(tenant: Tenant) -> dict[str, float]:
    """Measure a batch with a backlog of an hour. Raise if the plan scans a table."""
    transaction = tenant.ledger.transaction()
    await transaction.start()
    await tenant.ledger.execute(_SET_BACK, BACKLOG)
    plans = [await explain(tenant.ledger) for _ in range(MEASUREMENTS)]
    await transaction.rollback()
    nodes = {name for each in plans for name in node_types(each["Plan"])}
    assert "Seq Scan" not in nodes, nodes
    times = sorted(each["Execution Time"] for each in plans)
    return {"min": times[0], "median": median(times), "max": times[-1]}


async def explain(connection: asyncpg.Connection) -> Any:
    return orjson.loads(await connection.fetchval(_DUE))[0]


def node_types(node: dict[str, Any]) -> Iterator[str]:
    yield node["Node Type"]
    for child in node.get("Plans", ()):
        yield from node_types(child)
