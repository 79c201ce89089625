"""Very many at once: a burst of a hundred times the usual load, and a hundred thousand at the hour.

On servers and a stack of each test's own; tasks write down when they were started.
"""

from bisect import bisect
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from tests.acceptance.stack import Tenant
from tests.benchmarks import tasks
from tests.benchmarks.rig import HOLDS, Rig, Wave, late
from tests.benchmarks.starts import Starts

from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

USUAL = 10  # runs a second
BURST = 100 * USUAL
LONG = 60  # seconds of the burst
AROUND = 20  # seconds of the usual load before and after it
LOADING = 60.0  # seconds that are left for loading the burst, and for the usual load before it
EXECUTORS = 2
SLOTS = 8  # of each: with HELD, room for 800 runs a second, fewer than the burst brings
DRAINED = 900.0  # seconds; nothing of it is promised of a machine that others use

CROWD = 100_000  # schedules that are due within one second
PARTS = 10  # of that second
LATE = 300_000.0  # ms, p99: likewise

Record = Callable[[str, object], None]


@pytest.fixture
def most(tmp_path: Path) -> Path:
    """The folder where executors say how many ran at once."""
    folder = tmp_path / "most"
    folder.mkdir()
    return folder


@pytest.fixture
def rig(tmp_path: Path, most: Path) -> Iterator[Rig]:
    slots = {"HAREBELL_SLOTS_NORMAL": str(SLOTS), "HAREBELL_MAX_TARGET_SHARE": "1"}
    with Rig.open(tmp_path, **slots, **{tasks.MOST: str(most)}) as opened:
        opened.counts = ServiceCounts(executors=EXECUTORS)
        opened.start()
        yield opened


@pytest.fixture
def roomy_rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig.open(tmp_path) as opened:
        opened.start()
        yield opened


@pytest.mark.requirement("S63")
async def test_a_hundredfold_burst_of_a_minute_drains_and_no_executor_runs_more_than_its_slots(
    rig: Rig, most: Path, record_property: Record
) -> None:
    async with rig.tenant() as before, rig.tenant() as burst, rig.tenant() as after:
        many = await rig.load(burst, BURST * LONG, later=LOADING, rate=BURST, target=HOLDS)
        few = await usual_load(rig, before)
        drained_at = await drain(rig, many)
        again = await usual_load(rig, after)
        await drain(rig, again)
        for wave in (few, many, again):
            await rig.on_record(wave)
    starts = await rig.started(BURST * LONG + 2 * USUAL * AROUND)

    at_once = most_at_once(most)
    parts = cut(starts, [many.first.timestamp(), again.first.timestamp()])
    for name, part in zip(("before", "burst", "after"), parts, strict=True):
        record_property(name, f"{len(part)} runs, late by {told(part)}")
    drained_in = drained_at - many.last.timestamp()
    record_property("drained", f"{drained_in:.1f} s after the last of it was due")
    record_property("at once", f"{at_once} of {SLOTS}")
    assert len({due for due, _ in parts[1]}) == len(parts[1]) == BURST * LONG
    assert len(starts) == BURST * LONG + 2 * USUAL * AROUND
    assert min(started - due for due, started in starts) >= 0
    assert len(at_once) == EXECUTORS
    assert max(at_once) <= SLOTS


@pytest.mark.requirement("S64")
async def test_a_hundred_thousand_due_in_one_second_start_once_each_in_the_order_of_due(
    roomy_rig: Rig, record_property: Record
) -> None:
    async with roomy_rig.tenant() as tenant:
        wave = await roomy_rig.load(tenant, CROWD, ahead=LOADING, rate=CROWD)
        drained_at = await drain(roomy_rig, wave)
        await roomy_rig.on_record(wave)
    starts = await roomy_rig.started(CROWD)

    first = wave.first.timestamp()
    parts = cut(sorted(starts), [first + part / PARTS for part in range(1, PARTS)])
    medians = [median(started for _, started in part) - first for part in parts]
    p99 = late(starts)["p99"]
    record_property("late", told(starts))
    record_property("drained", f"{drained_at - first:.1f} s after the first was due")
    record_property("started", ", ".join(f"{each:.1f}" for each in medians))
    assert len(starts) == CROWD
    assert min(started - due for due, started in starts) >= 0
    assert medians == sorted(medians)
    assert p99 < LATE


async def usual_load(rig: Rig, tenant: Tenant) -> Wave:
    return await rig.load(tenant, USUAL * AROUND, rate=USUAL, target=HOLDS)


async def drain(rig: Rig, wave: Wave) -> float:
    """When all of it was on the record, in seconds since 1970."""
    await rig.until(wave.last)
    return await rig.drained(wave, within=DRAINED)


def most_at_once(folder: Path) -> list[int]:
    """Of each executor."""
    return [int(file.read_text()) for file in folder.iterdir()]


def cut(starts: Starts, moments: list[float]) -> list[Starts]:
    """By when they were due; one part more than there are moments."""
    parts: list[Starts] = [[] for _ in range(len(moments) + 1)]
    for due, started in starts:
        parts[bisect(moments, due)].append((due, started))
    return parts


def told(starts: Starts) -> str:
    return ", ".join(f"{name} {ms:,.0f} ms" for name, ms in late(starts).items())
