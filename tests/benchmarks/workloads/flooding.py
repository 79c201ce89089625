"""High work beside a flood of low work: how late it starts, without the flood and in it."""

from contextlib import AsyncExitStack
from typing import Any, Final

from tests.acceptance.stack import Tenant
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale

HIGH: Final = 1_000  # runs
RATE: Final = 100.0  # a second
LOW: Final = 5_000  # runs, due when the high ones begin
SLOW: Final = {"task": {"name": "harebell.sleep", "args": {"seconds": 0.05}}}

_LATE: Final = """
SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
    ORDER BY extract(epoch FROM a.started_at - r.due_at) * 1000)
FROM runs r JOIN attempts a USING (scheduled_for, schedule_id) WHERE r.tenant = $1
"""


async def flood(rig: Rig, report: Report, scale: Scale) -> None:
    for _ in range(scale.times):
        calm, flooded = await _high(rig, low=0), await _high(rig, low=LOW)
        report.add("flood", n=HIGH, low=LOW, calm_ms=calm, flooded_ms=flooded)


async def _high(rig: Rig, *, low: int) -> dict[str, Any]:
    async with AsyncExitStack() as opened:
        tenants = [await opened.enter_async_context(rig.tenant()) for _ in range(2)]
        waves = []
        if low:
            waves.append(
                await rig.load(tenants[0], low, ahead=rig.ahead + 1, target=SLOW, priority=2)
            )
        waves.append(await rig.load(tenants[1], HIGH, ahead=rig.ahead, rate=RATE, priority=9))
        for wave in waves:
            await rig.until(wave.last)
            await rig.drained(wave)
        return await _late(tenants[1])


async def _late(tenant: Tenant) -> dict[str, Any]:
    p50, p99 = await tenant.ledger.fetchval(_LATE, tenant.name)
    return {"p50": round(p50, 1), "p99": round(p99, 1)}
