"""High runs without and with a flood of low runs: the lateness of the high runs."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale, start_lateness
from tests.benchmarks.starts import Starts

from harebell.contract.schedule import DEFAULT_POOL
from harebell.dev.plan import ServiceKind

HIGH_RUNS: Final = 1_000  # runs
RATE: Final = 200.0  # high runs a second
LOW_RUNS: Final = 1_000  # runs, due at the start of the high runs
LOADING: Final = 3.0  # seconds between the loads, because the low runs are loaded first
SLOW_TASK: Final = {"task": {"name": "harebell.sleep", "args": {"seconds": 0.05}}}
BULK_POOL: Final = "bulk"  # a pool with a separate executor


async def flood(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure high runs with a flood in the same executor and with one on the same machine."""
    pooled: dict[str, Starts] = {"calm_ms": [], "flooded_ms": [], "apart_ms": []}
    for _ in range(scale.times):
        starts = {"calm_ms": await _high(rig, low=0), "flooded_ms": await _high(rig, low=LOW_RUNS)}
        with _bulk_executor(rig):
            starts["apart_ms"] = await _high(rig, low=LOW_RUNS, pool=BULK_POOL)
        report.add(
            "flood",
            n=HIGH_RUNS,
            low=LOW_RUNS,
            **{name: start_lateness(of) for name, of in starts.items()},
        )
        for name, of in starts.items():
            pooled[name] += of
    pooled_lateness = {name: start_lateness(of) for name, of in pooled.items()}
    report.add("floods", n=HIGH_RUNS * scale.times, low=LOW_RUNS, **pooled_lateness)


async def _high(rig: Rig, *, low: int, pool: str = DEFAULT_POOL) -> Starts:
    async with AsyncExitStack() as opened:
        tenants = [await opened.enter_async_context(rig.tenant()) for _ in range(2)]
        waves = []
        if low:
            slow = rig.load(tenants[0], low, later=LOADING, target=SLOW_TASK, priority=2, pool=pool)
            waves.append(await slow)
        waves.append(await rig.load(tenants[1], HIGH_RUNS, rate=RATE, priority=9))
        for wave in waves:
            await rig.until(wave.last)
            await rig.drained(wave)
        return await rig.started(HIGH_RUNS)  # the low runs record no start


@contextmanager
def _bulk_executor(rig: Rig) -> Iterator[None]:
    name = rig.start_one(ServiceKind.EXECUTOR, 2, HAREBELL_POOL=BULK_POOL)
    try:
        yield
    finally:
        rig.stop(name)
