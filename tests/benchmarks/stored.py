"""What stored schedules cost: `python -m tests.benchmarks.stored --schedules 10000000`.

Starts servers and services of its own, fills the tables, measures, and deletes everything. Prints
one line of JSON a measurement.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import orjson
from tests.acceptance.crowd import Crowd
from tests.acceptance.record import Target
from tests.acceptance.stack import Stack, Tenant, until
from tests.servers import Servers

READINGS = 50
BEHIND = 100_000  # schedules that were due in the last hour

_BEHIND = """
UPDATE schedule_state SET next_at = now() - make_interval(secs => 3600 * random())
WHERE schedule_id IN (SELECT schedule_id FROM schedule_state WHERE next_at IS NOT NULL LIMIT $1)
"""
_DUE = """
EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
SELECT s.schedule_id, s.version, s.state, s.next_at, s.planned_to, s.open_runs
FROM schedule_state s WHERE s.next_at > '-infinity' AND s.next_at <= now()
ORDER BY s.next_at LIMIT 1000 FOR UPDATE SKIP LOCKED
"""
_SIZES = """
SELECT relname, pg_table_size(oid) AS rows, pg_indexes_size(oid) AS indexes FROM pg_class
WHERE relname IN ('schedules', 'schedule_versions', 'schedule_state')
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, help="of the data; else a temporary one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as root, opened(Path(root)) as stored:
        asyncio.run(measure(stored, asked.schedules))


@contextmanager
def opened(root: Path) -> Iterator[Crowd]:
    with (
        Servers.open(root / "servers") as servers,
        Target.open(root / "calls.jsonl") as target,
        Stack.open(servers, root / "stack") as stack,
    ):
        yield Crowd(stack, target)


async def measure(stored: Crowd, count: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await stored.gather(count)
    say("loaded", schedules=count, seconds=round(loop.time() - began))
    assert stored.few is not None  # gathered
    async with stored.tenant() as tenant:
        await tenant.ledger.execute("ANALYZE schedules, schedule_versions, schedule_state")
        for row in await tenant.ledger.fetch(_SIZES):
            say("size", table=row["relname"], rows=row["rows"], indexes=row["indexes"])
        wave = await stored.wave(tenant, count)
        for name, each in (("few", stored.few), ("all", wave)):
            say("staging", stored=name, runs=len(each.due), blocks=each.blocks)
            say("ticker", stored=name, bytes=each.ticker.memory, threads=each.ticker.threads)
        messages = await until(stored.in_tiers, what="the broker's numbers")
        say("broker", messages=sum(messages.values()))
        await measure_due(tenant)


async def measure_due(tenant: Tenant) -> None:
    """Whatever is done is undone."""
    transaction = tenant.ledger.transaction()
    await transaction.start()
    await tenant.ledger.execute(_BEHIND, BEHIND)
    told = [await explained(tenant.ledger) for _ in range(READINGS)]
    took = sorted(each["Execution Time"] for each in told)
    say("due", batch=1_000, behind=BEHIND, min=took[0], median=median(took), max=took[-1])
    say("plan", nodes=list(names(told[-1]["Plan"])))
    await transaction.rollback()


async def explained(connection: asyncpg.Connection) -> Any:
    return orjson.loads(await connection.fetchval(_DUE))[0]


def names(node: dict[str, Any]) -> Iterator[str]:
    yield " ".join(filter(None, (node["Node Type"], node.get("Index Name"))))
    for child in node.get("Plans", ()):
        yield from names(child)


def say(what: str, **told: Any) -> None:
    sys.stdout.write(orjson.dumps({"what": what, **told}).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
