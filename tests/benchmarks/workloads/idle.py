"""Costs without due runs: idle services, a cold start and memory."""

import asyncio
import time
from typing import Final

from tests.benchmarks.figures import Report
from tests.benchmarks.machine import resident
from tests.benchmarks.rig import FAR_FUTURE, Rig, Scale

STORED_SCHEDULES: Final = (0, 100_000)  # schedules in addition to those of other workloads
IDLE_TIME: Final = 6.0  # seconds of the measurement
DUE_RUNS: Final = 1_000  # runs that become due while no service runs
DUE_AFTER_HORIZON: Final = 6.0  # seconds, so that no run is staged before the stop


async def idle(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the CPU time for each second, which must not depend on the stored schedules."""
    for stored in (*STORED_SCHEDULES, *([1_000_000] if scale.full else [])):
        async with rig.tenant() as tenant:
            if stored:
                await rig.load(tenant, stored, ahead=FAR_FUTURE, rate=stored)
            for _ in range(scale.times):
                await asyncio.sleep(1)
                before = rig.spent()
                await asyncio.sleep(IDLE_TIME)
                spent = rig.spent() - before
                report.add("idle", stored=stored, cpu_ms_per_s=spent.milliseconds(IDLE_TIME))


async def cold(rig: Rig, report: Report, scale: Scale) -> None:
    """Restart all services, which then find due runs that are not staged."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            wave = await rig.load(tenant, DUE_RUNS, later=DUE_AFTER_HORIZON)
            await asyncio.to_thread(rig.stop)
            await rig.until(wave.first)
            started_at = time.time()
            await asyncio.to_thread(rig.start)
            ready = time.time() - started_at
            starts = await rig.started(DUE_RUNS)
            first, last = (at - started_at for _, at in (starts[0], starts[-1]))
            figures = {"ready_s": ready, "first_start_s": first, "last_start_s": last}
            report.add("cold", n=DUE_RUNS, **{name: round(it, 2) for name, it in figures.items()})
            await rig.drained(wave)


async def memory(rig: Rig, report: Report, _: Scale) -> None:
    """Measure the memory of each process after the workloads before this one."""
    sizes = {name: round(resident(pid) / 2**20, 1) for name, pid in rig.pids().items()}
    report.add("memory", rss_mb=sizes)
