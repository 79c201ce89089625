"""Due runs: with one due time, at a constant rate, with one failure, with several instances."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tests.benchmarks.figures import Report, lateness
from tests.benchmarks.machine import CpuTime, watch_speed
from tests.benchmarks.rig import FAIL_ONCE_TASK, Rig, Scale, Wave, start_lateness

from harebell.dev.plan import ServiceKind

STAMPEDES: Final = (10_000, 50_000)  # runs
RATE: Final = 5_000  # runs a second
DURATION: Final = 12  # seconds
FULL_DURATION: Final = 60
MIN_RATE: Final = 2_000  # runs a second, assumed to be sustainable
MAX_RATE: Final = 16_000  # runs a second, assumed not to be sustainable
SEARCH_DURATION: Final = 10  # seconds at each rate of the search
RATE_STEP: Final = 2_000  # runs a second, the resolution of the search
TAIL: Final = 2  # seconds; a growing queue delays the runs at the end
MAX_TAIL_MS: Final = 50.0  # p99 of the tail
LIGHT_RATE: Final = 100  # runs a second
LIGHT_DURATION: Final = 10  # seconds
EACH_SECOND: Final = timedelta(seconds=1)
USERS: Final = 10_000  # 167 runs a second in total
SCHEDULES_PER_USER: Final = 5
USER_INTERVAL: Final = timedelta(minutes=5)
USERS_DURATION: Final = 20  # seconds
FULL_USERS_DURATION: Final = 3_600
WINDOW_START: Final = timedelta(
    seconds=1
)  # before the first due time; the window includes release and claims
# Instances of one service. All other workloads have one instance of each service.
INSTANCES: Final = (
    (ServiceKind.EXECUTOR, 2),
    (ServiceKind.EXECUTOR, 4),
    (ServiceKind.TICKER, 2),
    (ServiceKind.DISPATCHER, 2),
)
QUICK_RETRY: Final = {"max_attempts": 3, "backoff": {"base": "2s", "factor": 1, "jitter": "none"}}


@dataclass(kw_only=True)
class Costs:
    """CPU time from before the staging to the end of a wave, and in the window."""

    whole: CpuTime | None = None
    window: CpuTime | None = None
    done_at: float = 0.0
    python_ns: float = 0.0  # the median during the measurement
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
async def measure_costs(rig: Rig, wave: Wave, attempts: int = 1) -> AsyncIterator[Costs]:
    """Measure the costs of a wave. Enter the block as soon as the wave is stored."""
    costs = Costs()
    async with watch_speed() as watch:
        before = rig.spent()
        await rig.until(wave.first - WINDOW_START)
        at_window = rig.spent()
        yield costs
        await rig.until(wave.last)
        costs.done_at = await rig.drained(wave)
        after = rig.spent()
    costs.whole, costs.window = after - before, after - at_window
    costs.python_ns = watch.median_ns
    costs.record = await rig.on_record(wave, attempts)


async def stampede(rig: Rig, report: Report, scale: Scale) -> None:
    for number in STAMPEDES:
        for _ in range(scale.times):
            report.add("stampede", **await one_stampede(rig, number))


async def one_stampede(rig: Rig, number: int) -> dict[str, Any]:
    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, number)
        async with measure_costs(rig, wave) as costs:
            pass
        duration = costs.done_at - wave.first.timestamp()
        return {
            "n": number,
            "runs_per_s": round(number / duration),
            "late_ms": start_lateness(await rig.started(number)),
            **costs.figures(number),
        }


async def sustained(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure one rate, then search the highest rate without a growing queue by bisection."""
    for _ in range(scale.times):
        report.add(
            "sustained", **await run_at_rate(rig, RATE, FULL_DURATION if scale.full else DURATION)
        )
    seconds = FULL_DURATION if scale.full else SEARCH_DURATION
    sustained_rate, failed_rate = MIN_RATE, MAX_RATE
    while failed_rate - sustained_rate > RATE_STEP:
        rate = (sustained_rate + failed_rate) // 2
        figures = await run_at_rate(rig, rate, seconds)
        report.add("searching", **figures)
        sustained_rate, failed_rate = (
            (rate, failed_rate)
            if figures["tail_ms"]["p99"] < MAX_TAIL_MS
            else (sustained_rate, rate)
        )
    report.add("sustainable", runs_per_s=sustained_rate)


async def light(rig: Rig, report: Report, scale: Scale) -> None:
    for _ in range(scale.times):
        report.add("light", **await run_at_rate(rig, LIGHT_RATE, LIGHT_DURATION))


async def recurring(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure schedules that recur each second, at the rate of the one-shot schedules."""
    for _ in range(scale.times):
        report.add("recurring", **await run_recurring(rig, RATE, EACH_SECOND, DURATION))


async def users(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure recurring schedules of many users, for an hour or for the first seconds."""
    seconds = FULL_USERS_DURATION if scale.full else USERS_DURATION
    rate = USERS * SCHEDULES_PER_USER / USER_INTERVAL.total_seconds()
    report.add("users", **await run_recurring(rig, rate, USER_INTERVAL, seconds))


async def run_recurring(rig: Rig, rate: float, every: timedelta, seconds: int) -> dict[str, Any]:
    number = round(seconds * rate)
    first_period = min(
        seconds, every.total_seconds()
    )  # seconds with the first run of each schedule
    last_offset = timedelta(seconds=seconds - first_period)  # of the last run of each schedule

    def when(_: int, first: datetime) -> dict[str, str]:
        start, end = first.isoformat(), (first + last_offset).isoformat()
        return {"every": f"{every.total_seconds():g}s", "start": start, "end": end}

    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, round(first_period * rate), rate=rate, when=when)
        wave = replace(wave, number=number, last=wave.last + last_offset)
        async with measure_costs(rig, wave) as costs:
            pass
        starts = await rig.started(number)
        duration = max(costs.done_at - wave.first.timestamp(), seconds)
        return {
            "rate": round(rate),
            "seconds": seconds,
            "n": number,
            "runs_per_s": round(number / duration),
            "late_ms": start_lateness(starts),
            **costs.figures(number),
        }


async def run_at_rate(rig: Rig, rate: int, seconds: int) -> dict[str, Any]:
    number = rate * seconds
    async with rig.tenant() as tenant:
        wave = await rig.load(tenant, number, rate=rate)
        async with measure_costs(rig, wave) as costs:
            pass
        starts = await rig.started(number)
        duration = max(costs.done_at - wave.first.timestamp(), seconds)
        tail = [at - due for due, at in starts if due > wave.last.timestamp() - TAIL]
        return {
            "rate": rate,
            "runs_per_s": round(number / duration),
            "late_ms": start_lateness(starts),
            "tail_ms": lateness(tail),
            **costs.figures(number),
        }


async def retries(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure runs that fail once and succeed two seconds later."""
    number = STAMPEDES[0]
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            wave = await rig.load(tenant, number, target=FAIL_ONCE_TASK, retry=QUICK_RETRY)
            async with measure_costs(rig, wave, attempts=2) as costs:
                pass
            last = max(at for _, at in await rig.started(number))
            duration = last - wave.first.timestamp()
            report.add("retries", n=number, seconds=round(duration, 2), **costs.figures(number))


async def roles(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure a stampede with several instances of one service, to compare the cost of a run."""
    number = STAMPEDES[0]
    for role, count in INSTANCES:
        others = range(2, count + 1)
        for other in others:
            rig.start_one(role, other)
        for _ in range(scale.times):
            figures = await one_stampede(rig, number)
            report.add("roles", role=role.value, processes=count, **figures)
        rig.stop(*(f"{role}-{other}" for other in others))
