"""What there is to pay while nothing is due: idle services, a start from cold, memory."""

import asyncio
import time
from typing import Final

from tests.benchmarks.figures import Report
from tests.benchmarks.machine import resident
from tests.benchmarks.rig import FAR, Rig, Scale

STORED: Final = (0, 100_000)  # schedules beside those of other workloads
IDLE: Final = 6.0  # seconds that are counted
DUE: Final = 1_000  # runs that have come due while nothing ran
COMING: Final = 6.0  # seconds beyond the horizon: not yet staged when all is stopped


async def idle(rig: Rig, report: Report, scale: Scale) -> None:
    """Milliseconds of CPU a second; the same however many schedules wait."""
    for stored in (*STORED, *([1_000_000] if scale.full else [])):
        async with rig.tenant() as tenant:
            if stored:
                await rig.load(tenant, stored, ahead=FAR, rate=stored)
            for _ in range(scale.times):
                await asyncio.sleep(1)
                before = rig.spent()
                await asyncio.sleep(IDLE)
                spent = rig.spent() - before
                report.add("idle", stored=stored, cpu_ms_per_s=spent.milliseconds(IDLE))


async def cold(rig: Rig, report: Report, scale: Scale) -> None:
    """All services are started anew, and find runs that are due and not staged."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            wave = await rig.load(tenant, DUE, later=COMING)
            await asyncio.to_thread(rig.stop)
            await rig.until(wave.first)
            began = time.time()
            await asyncio.to_thread(rig.start)
            ready = time.time() - began
            starts = await rig.started(DUE)
            first, last = (at - began for _, at in (starts[0], starts[-1]))
            figures = {"ready_s": ready, "first_start_s": first, "last_start_s": last}
            report.add("cold", n=DUE, **{name: round(it, 2) for name, it in figures.items()})
            await rig.drained(wave)


async def memory(rig: Rig, report: Report, _: Scale) -> None:
    """After whatever has been measured before."""
    sizes = {name: round(resident(pid) / 2**20, 1) for name, pid in rig.pids().items()}
    report.add("memory", rss_mb=sizes)
