"""Executors that a scaler starts by the planned runs, compared with executors that always run."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.acceptance.scaler import Scaler
from tests.benchmarks.rig import Rig, Wave, start_lateness
from tests.benchmarks.starts import Starts

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

EXECUTORS = 2
AHEAD = 60.0  # seconds from the load to the due time
MAX_RATIO = 1.5  # of the p99 lateness
MARGIN_MS = 1_000.0  # of the p99 lateness, on a machine that other work shares
DRAIN_TIMEOUT = 120.0  # seconds
NAMES = [name_of(ServiceKind.EXECUTOR, number) for number in range(1, EXECUTORS + 1)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig.open(tmp_path) as opened:
        opened.counts = ServiceCounts(executors=EXECUTORS)
        opened.start()
        yield opened


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S66")
@pytest.mark.parametrize(
    ("runs", "margin"),
    [(1_000, MARGIN_MS), (10_000, MARGIN_MS)],
)
async def test_many_runs_at_once_start_as_early_on_scaled_executors_as_on_permanent_ones(
    rig: Rig, runs: int, margin: float, record_property: Callable[[str, object], None]
) -> None:
    permanent, _ = await start_at_once(rig, runs)
    rig.stop(*NAMES)
    port = rig.stack.services.plan(ServiceKind.TICKER, 1).port
    scaler = Scaler(
        metrics_url=f"http://127.0.0.1:{port}/metrics",
        pool="default",
        runs_per_executor=max(1, runs // EXECUTORS),
        max_executors=EXECUTORS,
        resize=lambda number: grow(rig, number),
    )
    scaling = asyncio.create_task(scaler.run())
    try:
        scaled, wave = await start_at_once(rig, runs)
    finally:
        scaling.cancel()
        with suppress(asyncio.CancelledError):
            await scaling

    before, after = start_lateness(permanent)["p99"], start_lateness(scaled)["p99"]
    lead = wave.first.timestamp() - scaler.sizes[0][0]
    record_property("p99", f"permanent {before:.0f} ms, scaled {after:.0f} ms, of {runs} runs")
    record_property("lead", f"{lead:.1f} s")
    assert min(started - due for due, started in scaled) >= 0
    assert scaler.executors == EXECUTORS
    assert lead > 0, "The scaler started executors only after the runs were due."
    assert after <= max(MAX_RATIO * before, before + margin)


async def start_at_once(rig: Rig, runs: int) -> tuple[Starts, Wave]:
    """Run schedules that are all due at one instant, and return their starts."""
    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, runs, ahead=AHEAD)
        await rig.until(wave.first)
        await rig.drained(wave, within=DRAIN_TIMEOUT)
        await rig.on_record(wave)
    return await rig.started(runs), wave


def grow(rig: Rig, number: int) -> None:
    """Start all executors at once, as an autoscaler does. The scaler stops none during the test."""
    for each in range(1, number + 1):
        rig.stack.start_one(ServiceKind.EXECUTOR, each, ready=False, **rig.settings)
