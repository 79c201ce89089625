"""What it costs a ticker to look often, and what it gains: one JSON line for each gap.

Run as `.venv/bin/python -m tests.benchmarks.look`, on private servers; it takes some minutes.
"""

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Final

import orjson
from tests.acceptance import counters
from tests.acceptance.faults import start
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

SCHEDULES: Final = 200
EVERY: Final = 10  # seconds between the runs of one: 20 runs a second of all, evenly
SETTLE: Final = 15.0  # seconds for what is behind to be made up for, before counting begins
WATCHED: Final = 30.0  # seconds
LOOKS: Final = (  # horizon, gap; the short horizon first: what is staged already is not again
    *(("2s", "250ms"), ("2s", "1s"), ("2s", "5s")),
    *(("84s", "50ms"), ("84s", "250ms"), ("84s", "1s"), ("84s", "5s"), ("84s", "15s")),
)
TARGET: Final = {"task": {"name": "harebell.echo"}}
TICKS: Final = os.sysconf("SC_CLK_TCK")  # a second, of the CPU times below

_BACKENDS: Final = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'harebell_ticker'
"""
_LATENESS: Final = """
SELECT extract(epoch FROM started_at - due_at)::float8 * 1000 AS ms FROM runs
WHERE started_at > now() - make_interval(secs => $1)
"""


@dataclass(frozen=True)
class Sums:
    """`cpu`: seconds that the database has worked for tickers."""

    statements: int
    cpu: float

    def __sub__(self, before: "Sums") -> "Sums":
        return Sums(self.statements - before.statements, self.cpu - before.cpu)


async def sums(tenant: Tenant) -> Sums:
    pids = [row["pid"] for row in await tenant.ledger.fetch(_BACKENDS)]
    return Sums((await counters.ticker_statements(tenant)).total(), sum(map(_cpu_of, pids)))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / TICKS


async def measure(stack: Stack, tenant: Tenant, horizon: str, gap: str) -> dict[str, object]:
    ticker = await start(stack, ServiceKind.TICKER, HAREBELL_HORIZON=horizon, HAREBELL_PASS_GAP=gap)
    try:
        await asyncio.sleep(SETTLE)
        before = await sums(tenant)
        await asyncio.sleep(WATCHED)
        spent = await sums(tenant) - before
        late = [row["ms"] for row in await tenant.ledger.fetch(_LATENESS, WATCHED)]
    finally:
        stack.kill(ticker.name)
    shares = quantiles(late, n=100)
    return {
        "horizon": horizon,
        "gap": gap,
        "runs_per_s": round(len(late) / WATCHED, 1),
        "statements_per_s": round(spent.statements / WATCHED, 1),
        "database_cpu_percent": round(100 * spent.cpu / WATCHED, 2),
        "late_p50_ms": round(shares[49], 1),
        "late_p99_ms": round(shares[98], 1),
    }


async def put_schedules(tenant: Tenant) -> None:
    """One after the other comes into the horizon, at even distances."""
    await tenant.harebell.put_many(
        [
            {
                "key": f"look-{number}",
                "when": {
                    "every": f"{EVERY}s",
                    "start": time_in(EVERY * (1 + number / SCHEDULES)).isoformat(),
                },
                "target": TARGET,
            }
            for number in range(SCHEDULES)
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="harebell-look-") as root:
        Path(root).chmod(0o755)  # the database may run as another account
        with (
            Servers.open(Path(root, "servers")) as servers,
            Stack.open(servers, Path(root, "stack")) as stack,
        ):
            stack.start(ServiceCounts(), HAREBELL_HORIZON=LOOKS[0][0])
            asyncio.run(_each(stack))


async def _each(stack: Stack) -> None:
    async with stack.tenant("look") as tenant:
        await tenant.ledger.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        await put_schedules(tenant)
        stack.kill("ticker-1")
        for horizon, gap in LOOKS:
            sys.stdout.write(orjson.dumps(await measure(stack, tenant, horizon, gap)).decode())
            sys.stdout.write("\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
