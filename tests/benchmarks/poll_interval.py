"""The cost and the benefit of short poll intervals of the ticker: one JSON line for each.

The command `.venv/bin/python -m tests.benchmarks.poll_interval` uses private servers.
The command takes some minutes.
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
from harebell.dev.spawn import start_process

SCHEDULES: Final = 200
INTERVAL: Final = 10  # seconds between two runs of a schedule: 20 runs a second in total
CATCH_UP_TIME: Final = 15.0  # seconds to catch up before the measurement begins
MEASURED_TIME: Final = 30.0  # seconds
# Horizon and poll interval. A long horizon stages runs that a later short horizon would not stage
# again, so the short horizon is first.
SETTINGS: Final = (
    ("2s", "250ms"),
    ("2s", "1s"),
    ("2s", "5s"),
    ("84s", "50ms"),
    ("84s", "250ms"),
    ("84s", "1s"),
    ("84s", "5s"),
    ("84s", "15s"),
)
TARGET: Final = {"task": {"name": "harebell.echo"}}
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")  # clock ticks in a second of CPU time

_BACKENDS: Final = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'harebell_ticker'
"""
_LATENESS: Final = """
SELECT extract(epoch FROM started_at - due_at)::float8 * 1000 AS ms FROM runs
WHERE started_at > now() - make_interval(secs => $1)
"""


@dataclass(frozen=True)
class Totals:
    """Statements of the tickers, and the CPU seconds of the database for them."""

    statements: int
    cpu: float

    def __sub__(self, before: "Totals") -> "Totals":
        return Totals(self.statements - before.statements, self.cpu - before.cpu)


async def measure_totals(tenant: Tenant) -> Totals:
    pids = [row["pid"] for row in await tenant.ledger.fetch(_BACKENDS)]
    return Totals((await counters.ticker_statements(tenant)).total(), sum(map(_cpu_of, pids)))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / CLOCK_TICKS


async def measure(
    stack: Stack, tenant: Tenant, horizon: str, poll_interval: str
) -> dict[str, object]:
    ticker = await start(
        stack,
        ServiceKind.TICKER,
        HAREBELL_HORIZON=horizon,
        HAREBELL_MIN_POLL_INTERVAL=poll_interval,
    )
    try:
        await asyncio.sleep(CATCH_UP_TIME)
        before = await measure_totals(tenant)
        await asyncio.sleep(MEASURED_TIME)
        used = await measure_totals(tenant) - before
        late = [row["ms"] for row in await tenant.ledger.fetch(_LATENESS, MEASURED_TIME)]
    finally:
        stack.kill(ticker.name)
    shares = quantiles(late, n=100)
    return {
        "horizon": horizon,
        "poll_interval": poll_interval,
        "runs_per_s": round(len(late) / MEASURED_TIME, 1),
        "statements_per_s": round(used.statements / MEASURED_TIME, 1),
        "database_cpu_percent": round(100 * used.cpu / MEASURED_TIME, 2),
        "late_p50_ms": round(shares[49], 1),
        "late_p99_ms": round(shares[98], 1),
    }


async def put_schedules(tenant: Tenant) -> None:
    """Put schedules at even distances, so that the horizon reaches one after the other."""
    await tenant.harebell.put_many(
        [
            {
                "key": f"poll-{number}",
                "when": {
                    "every": f"{INTERVAL}s",
                    "start": time_in(INTERVAL * (1 + number / SCHEDULES)).isoformat(),
                },
                "target": TARGET,
            }
            for number in range(SCHEDULES)
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="harebell-poll-") as root:
        Path(root).chmod(0o755)  # the database may run as another user
        with (
            Servers.open(Path(root, "servers")) as servers,
            Stack.open(servers, Path(root, "stack"), start=start_process) as stack,
        ):
            stack.start(ServiceCounts(), HAREBELL_HORIZON=SETTINGS[0][0])
            asyncio.run(_each(stack))


async def _each(stack: Stack) -> None:
    async with stack.tenant("poll") as tenant:
        await tenant.ledger.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        await put_schedules(tenant)
        stack.kill("ticker-1")
        for horizon, poll_interval in SETTINGS:
            sys.stdout.write(
                orjson.dumps(await measure(stack, tenant, horizon, poll_interval)).decode()
            )
            sys.stdout.write("\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
