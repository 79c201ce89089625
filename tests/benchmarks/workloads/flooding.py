"""High work beside a flood of low work: how late it starts, without the flood and in it."""

from contextlib import AsyncExitStack
from typing import Any, Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale, late

HIGH: Final = 2_000  # runs
RATE: Final = 200.0  # a second
LOW: Final = 1_600  # runs, due when the high ones begin
LOADING: Final = 3.0  # seconds: the low ones are loaded first, and due when the others have begun
SLOW: Final = {"task": {"name": "harebell.sleep", "args": {"seconds": 0.05}}}


async def flood(rig: Rig, report: Report, scale: Scale) -> None:
    for _ in range(scale.times):
        calm, flooded = await _high(rig, low=0), await _high(rig, low=LOW)
        report.add("flood", n=HIGH, low=LOW, calm_ms=calm, flooded_ms=flooded)


async def _high(rig: Rig, *, low: int) -> dict[str, Any]:
    async with AsyncExitStack() as opened:
        tenants = [await opened.enter_async_context(rig.tenant()) for _ in range(2)]
        waves = []
        if low:
            waves.append(await rig.load(tenants[0], low, later=LOADING, target=SLOW, priority=2))
        waves.append(await rig.load(tenants[1], HIGH, rate=RATE, priority=9))
        for wave in waves:
            await rig.until(wave.last)
            await rig.drained(wave)
        return late(await rig.started(HIGH))  # the low ones write nothing down
