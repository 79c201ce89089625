"""Runs that come due: at one instant, evenly, failing once, with more executors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tests.benchmarks.figures import Report, lateness
from tests.benchmarks.machine import Spent, watched
from tests.benchmarks.rig import FAILS_ONCE, Rig, Scale, Wave, late

from harebell.dev.plan import ServiceKind

STAMPEDES: Final = (10_000, 50_000)  # runs
RATE: Final = 5_000  # runs a second
LASTING: Final = 12  # seconds
FULL_LASTING: Final = 60
LOWEST: Final = 2_000  # runs a second, that are not tried: they can be sustained
HIGHEST: Final = 16_000  # runs a second, that are not tried: they cannot
SEARCHED: Final = 10  # seconds of each rate that is tried
GRAIN: Final = 2_000  # runs a second, to which what can be sustained is found
TAIL: Final = 2  # seconds: what is late at the end of a rate is late because something has grown
GROWN: Final = 50.0  # milliseconds, of the tail's p99
LIGHT: Final = 100  # runs a second
LIGHT_FOR: Final = 10  # seconds
EACH_SECOND: Final = timedelta(seconds=1)
USERS: Final = 10_000  # with so many schedules each, every so often: 167 runs a second
TASKS: Final = 5
EVERY: Final = timedelta(minutes=5)
USERS_FOR: Final = 20  # seconds
FULL_USERS_FOR: Final = 3_600
BEFORE: Final = timedelta(seconds=1)  # the window in which a wave is released, claimed and run
# processes of a role; all other workloads have one of each
SEVERAL: Final = (
    (ServiceKind.EXECUTOR, 2),
    (ServiceKind.EXECUTOR, 4),
    (ServiceKind.TICKER, 2),
    (ServiceKind.DISPATCHER, 2),
)
QUICKLY: Final = {"max_attempts": 3, "backoff": {"base": "2s", "factor": 1, "jitter": "none"}}


@dataclass
class Costs:
    """CPU from before staging to the end of a wave, and in the window alone."""

    whole: Spent | None = None
    window: Spent | None = None
    done_at: float = 0.0
    python_ns: float = 0.0  # the mean meanwhile
    record: Mapping[str, int] = field(default_factory=dict)

    def figures(self, number: int) -> dict[str, Any]:
        assert self.whole is not None
        assert self.window is not None
        return {
            "cpu_us_per_run": self.whole.per(number),
            "window_us_per_run": self.window.per(number),
            "python_ns": self.python_ns,
            **self.record,
        }


@asynccontextmanager
async def counted(rig: Rig, wave: Wave, attempts: int = 1) -> AsyncIterator[Costs]:
    """To be entered as soon as the wave is stored; the body may wait for whatever it measures."""
    costs = Costs()
    async with watched() as watch:
        before = rig.spent()
        await rig.until(wave.first - BEFORE)
        begun = rig.spent()
        yield costs
        await rig.until(wave.last)
        costs.done_at = await rig.drained(wave)
        after = rig.spent()
    costs.whole, costs.window = after - before, after - begun
    costs.python_ns = watch.mean_ns
    costs.record = await rig.on_record(wave, attempts)


async def stampede(rig: Rig, report: Report, scale: Scale) -> None:
    for number in STAMPEDES:
        for _ in range(scale.times):
            report.add("stampede", **await one_stampede(rig, number))


async def one_stampede(rig: Rig, number: int) -> dict[str, Any]:
    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, number)
        async with counted(rig, wave) as costs:
            pass
        took = costs.done_at - wave.first.timestamp()
        return {
            "n": number,
            "runs_per_s": round(number / took),
            "late_ms": late(await rig.started(number)),
            **costs.figures(number),
        }


async def sustained(rig: Rig, report: Report, scale: Scale) -> None:
    """One rate, and by halving the highest at which nothing grows."""
    for _ in range(scale.times):
        report.add("sustained", **await evenly(rig, RATE, FULL_LASTING if scale.full else LASTING))
    seconds = FULL_LASTING if scale.full else SEARCHED
    kept, lost = LOWEST, HIGHEST
    while lost - kept > GRAIN:
        rate = (kept + lost) // 2
        figures = await evenly(rig, rate, seconds)
        report.add("searching", **figures)
        kept, lost = (rate, lost) if figures["tail_ms"]["p99"] < GROWN else (kept, rate)
    report.add("sustainable", runs_per_s=kept)


async def light(rig: Rig, report: Report, scale: Scale) -> None:
    for _ in range(scale.times):
        report.add("light", **await evenly(rig, LIGHT, LIGHT_FOR))


async def recurring(rig: Rig, report: Report, scale: Scale) -> None:
    """As many a second as of one-shots, of schedules that are due each second."""
    for _ in range(scale.times):
        report.add("recurring", **await again_and_again(rig, RATE, EACH_SECOND, LASTING))


async def users(rig: Rig, report: Report, scale: Scale) -> None:
    """Schedules that recur, of many users, for an hour; or the first of them, for a moment."""
    seconds = FULL_USERS_FOR if scale.full else USERS_FOR
    rate = USERS * TASKS / EVERY.total_seconds()
    report.add("users", **await again_and_again(rig, rate, EVERY, seconds))


async def again_and_again(rig: Rig, rate: float, every: timedelta, seconds: int) -> dict[str, Any]:
    number = round(seconds * rate)
    around = min(seconds, every.total_seconds())  # of first instants
    again = timedelta(seconds=seconds - around)  # the last of each, so that all are counted

    def when(_: int, first: datetime) -> dict[str, str]:
        start, end = first.isoformat(), (first + again).isoformat()
        return {"every": f"{every.total_seconds():g}s", "start": start, "end": end}

    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, round(around * rate), rate=rate, when=when)
        wave = replace(wave, number=number, last=wave.last + again)
        async with counted(rig, wave) as costs:
            pass
        starts = await rig.started(number)
        took = max(costs.done_at - wave.first.timestamp(), seconds)
        return {
            "rate": round(rate),
            "seconds": seconds,
            "n": number,
            "runs_per_s": round(number / took),
            "late_ms": late(starts),
            **costs.figures(number),
        }


async def evenly(rig: Rig, rate: int, seconds: int) -> dict[str, Any]:
    number = rate * seconds
    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, number, rate=rate)
        async with counted(rig, wave) as costs:
            pass
        starts = await rig.started(number)
        took = max(costs.done_at - wave.first.timestamp(), seconds)
        tail = [at - due for due, at in starts if due > wave.last.timestamp() - TAIL]
        return {
            "rate": rate,
            "runs_per_s": round(number / took),
            "late_ms": late(starts),
            "tail_ms": lateness(tail),
            **costs.figures(number),
        }


async def retries(rig: Rig, report: Report, scale: Scale) -> None:
    """Every run fails once and succeeds two seconds later."""
    number = STAMPEDES[0]
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            wave = await rig.load(tenant, number, target=FAILS_ONCE, retry=QUICKLY)
            async with counted(rig, wave, attempts=2) as costs:
                pass
            last = max(at for _, at in await rig.started(number))
            took = last - wave.first.timestamp()
            report.add("retries", n=number, seconds=round(took, 2), **costs.figures(number))


async def roles(rig: Rig, report: Report, scale: Scale) -> None:
    """The same stampede with several of one role: whether its part of a run stays what it is."""
    number = STAMPEDES[0]
    for role, count in SEVERAL:
        others = range(2, count + 1)
        for other in others:
            rig.start_one(role, other)
        for _ in range(scale.times):
            figures = await one_stampede(rig, number)
            report.add("roles", role=role.value, processes=count, **figures)
        rig.stop(*(f"{role}-{other}" for other in others))
