"""Metrics of planned runs: the runs of the fleet that will be due soon, staged or not.

A pass reads one snapshot of the database and counts the due runs of each second.
The metrics follow the clock between two passes.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import asyncpg
import structlog

from harebell.contract.amqp_names import Lane
from harebell.contract.errors import Transient
from harebell.domain.planned_times import PlannedSchedule, planned_spans
from harebell.domain.timetables import DueTimesCache, milliseconds_of
from harebell.runtime.clock import Clock, monotonic, thread_cpu
from harebell.storage.engine import translate_db_errors
from harebell.ticker import metrics
from harebell.ticker.backlog import MAX_LANES
from harebell.ticker.store import planned_runs as store

WITHIN: Final = {"1m": 60, "5m": 300, "15m": 900}  # seconds, by the value of the label
REFRESH_INTERVAL: Final = 1.0  # seconds between two updates of the metrics
MIN_PASS_INTERVAL: Final = 10.0  # seconds between the starts of two passes
# A pass computes for a quarter of its time, and the next one waits for four times its duration.
# The passes of a large fleet therefore use at most 5 % of one core.
PAUSE_FACTOR: Final = 3.0
WAIT_FACTOR: Final = 4.0
MAX_PASS_TIME: Final = 40.0  # seconds, in which PostgreSQL keeps the snapshot
MAX_AGE: Final = timedelta(minutes=5)  # of the counts, which reach this much further than 15 min
MAX_SCHEDULES: Final = 200_000  # with a time to plan, in one pass
BATCH: Final = 500  # schedules that are read at once
MAX_SLICE: Final = 0.05  # seconds of CPU time between two pauses, if one schedule needs no more
MAX_COMPUTED: Final = 2_000_000  # times of cron expressions and of jitter in one pass
MAX_POOLS: Final = MAX_LANES // len(Lane)
CLEANING_INTERVAL: Final = 300.0  # seconds between two removals of unused times
POOLS_INTERVAL: Final = 60.0  # seconds between two lists of the known pools

LaneKey: TypeAlias = tuple[str, str]  # pool and lane

log = structlog.get_logger()


@dataclass(slots=True)
class PlannedCounts:
    """The number of runs of each pool and lane by the second in which they become due.

    A second [s since the epoch] contains the due times after the second before.
    """

    seconds: dict[LaneKey, Counter[int]] = field(default_factory=dict)
    at: datetime | None = None  # of the snapshot
    is_complete: bool = True

    def add_second(self, lane: LaneKey, second: int, runs: int) -> None:
        self.seconds.setdefault(lane, Counter())[second] += runs

    def add_due_times(self, lane: LaneKey, due: Sequence[int]) -> None:
        """Count due times [ms since the epoch]. A whole number of seconds counts fastest."""
        counter = self.seconds.setdefault(lane, Counter())
        if isinstance(due, range) and due.step % 1000 == 0:
            counter.update(range(_second(due[0]), _second(due[-1]) + 1, due.step // 1000))
        else:
            counter.update([_second(each) for each in due])

    def within(self, lane: LaneKey, now: datetime, seconds: int) -> int:
        """Return the number of runs that become due in the next seconds."""
        first = milliseconds_of(now) // 1000 + 1
        counts = self.seconds.get(lane, Counter[int]())
        return sum(counts[each] for each in range(first, first + seconds))


def _second(milliseconds: int) -> int:
    return -(-milliseconds // 1000)


@dataclass(slots=True, kw_only=True)
class PlannedRunsMetrics:
    """The passes of one ticker and its metrics. Every ticker shows the whole fleet."""

    pool: asyncpg.Pool
    clock: Clock
    counts: PlannedCounts = field(default_factory=PlannedCounts)
    timetables: store.TimetableStore = field(default_factory=store.TimetableStore)
    _cache: DueTimesCache = field(default_factory=DueTimesCache)
    _pools: list[str] = field(default_factory=list)
    _shown: set[LaneKey] = field(default_factory=set)
    _cleaned_at: float = 0.0
    _listed_at: float = float("-inf")

    async def run(self) -> None:
        """Repeat passes and updates until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat_passes())
            tasks.create_task(self._repeat_updates())

    async def _repeat_passes(self) -> None:
        while True:
            began = monotonic()
            try:
                await self.count()
            except Transient as error:
                log.warning("planned runs not counted", error=error.code, reason=error.reason)
            duration = monotonic() - began
            await asyncio.sleep(max(MIN_PASS_INTERVAL - duration, WAIT_FACTOR * duration))

    async def _repeat_updates(self) -> None:
        while True:
            self.update()
            await asyncio.sleep(REFRESH_INTERVAL)

    async def count(self) -> None:
        """Count the planned runs of one snapshot. Raise `DatabaseUnavailable`."""
        began, computed = monotonic(), self._cache.computed
        counts = PlannedCounts()
        with translate_db_errors():
            async with store.open_snapshot(self.pool) as connection:
                now = self.clock.now()
                until = now + timedelta(seconds=max(WITHIN.values())) + MAX_AGE
                await self._list_pools(connection)
                staged = await store.count_staged(connection, now, until)
                for lane, seconds in staged.items():
                    for second, runs in seconds.items():
                        counts.add_second(lane, second, runs)
                total = 0
                async for rows in store.read_planned(
                    connection, until + MAX_AGE, limit=MAX_SCHEDULES, batch=BATCH
                ):
                    schedules = await self.timetables.schedules(connection, rows)
                    while schedules and not self._is_over(began, computed):
                        schedules = await self._add_slice(counts, schedules, now=now, until=until)
                    total += len(rows) - len(schedules)
                    if schedules or total >= MAX_SCHEDULES:
                        counts.is_complete = False
                        log.warning("planned runs counted in part", schedules=total)
                        break
        counts.at = now
        self.counts = counts
        self._clean(now)

    def _is_over(self, began: float, computed: int) -> bool:
        is_late = monotonic() - began > MAX_PASS_TIME
        return is_late or self._cache.computed - computed > MAX_COMPUTED

    async def _add_slice(
        self,
        counts: PlannedCounts,
        schedules: list[PlannedSchedule],
        *,
        now: datetime,
        until: datetime,
    ) -> list[PlannedSchedule]:
        """Count the first schedules in a thread, then pause. Return the others.

        A schedule can need seconds, for which the ticker must not stand still.
        """

        def add() -> tuple[int, float]:
            began = thread_cpu()
            for number, each in enumerate(schedules, start=1):
                self._add(counts, each, now=now, until=until)
                if (spent := thread_cpu() - began) > MAX_SLICE:
                    return number, spent
            return len(schedules), thread_cpu() - began

        added, spent = await asyncio.to_thread(add)
        await asyncio.sleep(PAUSE_FACTOR * spent)
        return schedules[added:]

    def _add(
        self, counts: PlannedCounts, schedule: PlannedSchedule, *, now: datetime, until: datetime
    ) -> None:
        for span in planned_spans(schedule, now=now, until=until, cache=self._cache):
            lane = store.lane_of_timetable(span.timetable)
            # A run that is late already belongs to the backlog.
            caught_up = [each for each in span.caught_up if each > milliseconds_of(now)]
            for due in (caught_up, span.due_times(self._cache)):
                if due:
                    counts.add_due_times(lane, due)

    def update(self) -> None:
        """Set the metrics from the counts of the last pass."""
        now = self.clock.now()
        if self.counts.at is not None:
            metrics.PLANNED_RUNS_AGE.set((now - self.counts.at).total_seconds())
        known = {(pool, lane.value) for pool in self._pools for lane in Lane}
        lanes = sorted(known | self.counts.seconds.keys())[:MAX_LANES]
        for lane in self._shown - set(lanes):
            for name in WITHIN:
                metrics.PLANNED_RUNS.remove(*lane, name)
        self._shown = set(lanes)
        for lane in lanes:
            for name, seconds in WITHIN.items():
                metrics.PLANNED_RUNS.labels(*lane, name).set(self.counts.within(lane, now, seconds))

    async def _list_pools(self, connection: asyncpg.Connection) -> None:
        if monotonic() - self._listed_at >= POOLS_INTERVAL:
            self._pools = await store.find_pools(connection, MAX_POOLS)
            self._listed_at = monotonic()

    def _clean(self, now: datetime) -> None:
        if monotonic() - self._cleaned_at >= CLEANING_INTERVAL:
            self._cache.discard_before(now)
            self.timetables.discard_unused()
            self._cleaned_at = monotonic()
