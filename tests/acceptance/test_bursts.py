"""Many runs at once: a hundredfold burst, and a hundred thousand runs within one second.

Each test has separate servers and a separate stack. The tasks record their start times.
"""

from bisect import bisect
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from tests.acceptance.stack import Tenant
from tests.benchmarks import tasks
from tests.benchmarks.rig import HOLD_TASK, Rig, Wave, start_lateness
from tests.benchmarks.starts import Starts

from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

USUAL = 10  # runs a second
BURST = 100 * USUAL
BURST_DURATION = 60  # seconds
USUAL_DURATION = 20  # seconds of the usual load before and after the burst
LOADING = 60.0  # seconds to load the burst and to run the usual load before the burst
EXECUTORS = 2
SLOTS = 8  # of each executor: with HOLD_TIME, 800 runs a second, fewer than the burst
DRAIN_TIMEOUT = 900.0  # seconds; on a shared machine, Harebell promises no time

SIMULTANEOUS = 100_000  # schedules that are due within one second
PARTS = 10  # of that second
MAX_LATENESS_MS = 300_000.0  # p99; on a shared machine, Harebell promises no lateness

Record = Callable[[str, object], None]


@pytest.fixture
def concurrency_folder(tmp_path: Path) -> Path:
    """Return the folder in which each executor records its maximum concurrency."""
    folder = tmp_path / "concurrency"
    folder.mkdir()
    return folder


@pytest.fixture
def rig(tmp_path: Path, concurrency_folder: Path) -> Iterator[Rig]:
    slots = {"HAREBELL_SLOTS_NORMAL": str(SLOTS), "HAREBELL_MAX_TARGET_SHARE": "1"}
    with Rig.open(
        tmp_path, **slots, **{tasks.CONCURRENCY_FOLDER: str(concurrency_folder)}
    ) as opened:
        opened.counts = ServiceCounts(executors=EXECUTORS)
        opened.start()
        yield opened


@pytest.fixture
def roomy_rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig.open(tmp_path) as opened:
        opened.start()
        yield opened


@pytest.mark.requirement("S63")
async def test_hundredfold_burst_of_a_minute_drains_within_the_slots_of_each_executor(
    rig: Rig, concurrency_folder: Path, record_property: Record
) -> None:
    async with rig.tenant() as before, rig.tenant() as burst, rig.tenant() as after:
        burst_wave = await rig.load(
            burst, BURST * BURST_DURATION, later=LOADING, rate=BURST, target=HOLD_TASK
        )
        usual_wave = await usual_load(rig, before)
        drained_at = await drain(rig, burst_wave)
        second_usual_wave = await usual_load(rig, after)
        await drain(rig, second_usual_wave)
        for wave in (usual_wave, burst_wave, second_usual_wave):
            await rig.on_record(wave)
    starts = await rig.started(BURST * BURST_DURATION + 2 * USUAL * USUAL_DURATION)

    concurrency = max_concurrency(concurrency_folder)
    parts = split_by_due_time(
        starts, [burst_wave.first.timestamp(), second_usual_wave.first.timestamp()]
    )
    for name, part in zip(("before", "burst", "after"), parts, strict=True):
        record_property(name, f"{len(part)} runs, late by {lateness_text(part)}")
    drained_in = drained_at - burst_wave.last.timestamp()
    record_property("drained", f"{drained_in:.1f} s after the last of it was due")
    record_property("at once", f"{concurrency} of {SLOTS}")
    assert len({due for due, _ in parts[1]}) == len(parts[1]) == BURST * BURST_DURATION
    assert len(starts) == BURST * BURST_DURATION + 2 * USUAL * USUAL_DURATION
    assert min(started - due for due, started in starts) >= 0
    assert len(concurrency) == EXECUTORS
    assert max(concurrency) <= SLOTS


@pytest.mark.measures
@pytest.mark.requirement("S64")
async def test_hundred_thousand_runs_due_in_one_second_start_once_in_order_of_due_time(
    roomy_rig: Rig, record_property: Record
) -> None:
    async with roomy_rig.tenant() as tenant:
        wave = await roomy_rig.load(tenant, SIMULTANEOUS, ahead=LOADING, rate=SIMULTANEOUS)
        drained_at = await drain(roomy_rig, wave)
        await roomy_rig.on_record(wave)
    starts = await roomy_rig.started(SIMULTANEOUS)

    first = wave.first.timestamp()
    parts = split_by_due_time(sorted(starts), [first + part / PARTS for part in range(1, PARTS)])
    medians = [median(started for _, started in part) - first for part in parts]
    p99 = start_lateness(starts)["p99"]
    record_property("late", lateness_text(starts))
    record_property("drained", f"{drained_at - first:.1f} s after the first was due")
    record_property("started", ", ".join(f"{each:.1f}" for each in medians))
    assert len(starts) == SIMULTANEOUS
    assert min(started - due for due, started in starts) >= 0
    assert medians == sorted(medians)
    assert p99 < MAX_LATENESS_MS


async def usual_load(rig: Rig, tenant: Tenant) -> Wave:
    return await rig.load(tenant, USUAL * USUAL_DURATION, rate=USUAL, target=HOLD_TASK)


async def drain(rig: Rig, wave: Wave) -> float:
    """Wait until every run is recorded and return the time in seconds since 1970."""
    await rig.until(wave.last)
    return await rig.drained(wave, within=DRAIN_TIMEOUT)


def max_concurrency(folder: Path) -> list[int]:
    """Return the maximum concurrency of each executor."""
    return [int(file.read_text()) for file in folder.iterdir()]


def split_by_due_time(starts: Starts, times: list[float]) -> list[Starts]:
    """Split the starts by due time into one part more than there are `times`."""
    parts: list[Starts] = [[] for _ in range(len(times) + 1)]
    for due, started in starts:
        parts[bisect(times, due)].append((due, started))
    return parts


def lateness_text(starts: Starts) -> str:
    return ", ".join(f"{name} {ms:,.0f} ms" for name, ms in start_lateness(starts).items())
