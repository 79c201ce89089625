"""High work beside a flood of low work: how late it starts, without the flood and in it."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale, late
from tests.benchmarks.starts import Starts

from harebell.contract.schedule import DEFAULT_POOL
from harebell.dev.plan import ServiceKind

HIGH: Final = 1_000  # runs
RATE: Final = 200.0  # a second
LOW: Final = 1_000  # runs, due when the high ones begin
LOADING: Final = 3.0  # seconds: the low ones are loaded first, and due when the others have begun
SLOW: Final = {"task": {"name": "harebell.sleep", "args": {"seconds": 0.05}}}
APART: Final = "bulk"  # a pool with an executor of its own


async def flood(rig: Rig, report: Report, scale: Scale) -> None:
    """Beside a flood in the same executor, and beside one that shares only the machine."""
    pooled: dict[str, Starts] = {"calm_ms": [], "flooded_ms": [], "apart_ms": []}
    for _ in range(scale.times):
        starts = {"calm_ms": await _high(rig, low=0), "flooded_ms": await _high(rig, low=LOW)}
        with _executor_apart(rig):
            starts["apart_ms"] = await _high(rig, low=LOW, pool=APART)
        report.add("flood", n=HIGH, low=LOW, **{name: late(of) for name, of in starts.items()})
        for name, of in starts.items():
            pooled[name] += of
    of_all = {name: late(of) for name, of in pooled.items()}
    report.add("floods", n=HIGH * scale.times, low=LOW, **of_all)


async def _high(rig: Rig, *, low: int, pool: str = DEFAULT_POOL) -> Starts:
    async with AsyncExitStack() as opened:
        tenants = [await opened.enter_async_context(rig.tenant()) for _ in range(2)]
        waves = []
        if low:
            slow = rig.load(tenants[0], low, later=LOADING, target=SLOW, priority=2, pool=pool)
            waves.append(await slow)
        waves.append(await rig.load(tenants[1], HIGH, rate=RATE, priority=9))
        for wave in waves:
            await rig.until(wave.last)
            await rig.drained(wave)
        return await rig.started(HIGH)  # the low ones write nothing down


@contextmanager
def _executor_apart(rig: Rig) -> Iterator[None]:
    name = rig.start_one(ServiceKind.EXECUTOR, 2, HAREBELL_POOL=APART)
    try:
        yield
    finally:
        rig.stop(name)
