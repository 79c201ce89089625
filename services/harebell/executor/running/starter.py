"""The starter of a lane, which starts each claimed run at its due time and never earlier."""

import asyncio
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.start_queue import (
    BATCHED_START_THRESHOLD,
    DeferredRuns,
    StartQueue,
    min_sleep,
)
from harebell.executor.running.attempts import LaneAttempts
from harebell.executor.running.bulkheads import TargetBulkhead, TenantBulkhead, ThroughputEstimate
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.timers import Timer, TimerFactory, loop_timer
from harebell.runtime.clock import Clock, monotonic

CLOCK_CHECK_INTERVAL: Final = 1.0  # seconds between two checks whether the clock is steady again
MAX_STARTS_PER_ITERATION: Final = 16  # of a lane, so that the other lanes start on time
# The deferred runs of a target or tenant, as a factor of the enough runs: the priorities of the
# widest lane.
# At this number, the lane claims no ticket of it, however urgent the ticket is.
MAX_DEFERRED_FACTOR: Final = 4
EARLIEST_RANK: Final = datetime.min.replace(tzinfo=UTC)  # no ticket is more urgent
LATE_AFTER: Final = 0.05  # seconds after the due time of the first run; then the lane is late

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class LaneStarter:
    """The start queue, the slots and the unfinished attempts of one lane."""

    lane: Lane
    slots: int
    steady_seconds: float  # without a step of the clock, before a run may start
    bulkhead: TargetBulkhead
    tenants: TenantBulkhead
    clock: Clock
    attempts: LaneAttempts
    start_guard: StartGuard
    timers: TimerFactory = loop_timer
    queue: StartQueue = field(default_factory=StartQueue)
    running: dict[ClaimedRun, asyncio.Task[None]] = field(default_factory=dict)
    _capacity_events: list[asyncio.Event] = field(default_factory=list)
    _is_closed: bool = False
    _stop_reasons: dict[ClaimedRun, str] = field(default_factory=dict)
    _started_at: dict[ClaimedRun, float] = field(default_factory=dict)  # of unfinished attempts
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _throughput: ThroughputEstimate = field(init=False)

    def __post_init__(self) -> None:
        self._throughput = ThroughputEstimate(self.slots)
        self.start_guard.watch(self.next_start)
        self.tenants.attempts.watch(self._resume_tenant)

    def watch_capacity(self) -> asyncio.Event:
        """Return a new event, which the starter sets when the lane may be able to claim more.

        Each claimer has one of its own, which it clears, and sets when it has to decide again.
        """
        self._capacity_events.append(asyncio.Event())
        return self._capacity_events[-1]

    def capacity(self) -> int:
        """Return the number of runs that the lane may claim now."""
        return self._throughput.capacity(
            len(self.queue), self._running_seconds(), is_late=self._is_late()
        )

    def urgent_capacity(self) -> int:
        """Return the number of runs that the lane may claim now if they start before all others."""
        return self._throughput.urgent_capacity(
            len(self.queue), self._running_seconds(), is_late=self._is_late()
        )

    def saturated_targets(self) -> dict[str, datetime]:
        """Return the target shares for which the lane claims only more urgent tickets for now.

        A ticket is more urgent if its start rank is below the value.
        """
        return _saturated(self.bulkhead, self.queue.of_targets)

    def saturated_tenants(self) -> dict[str, datetime]:
        """Return the tenants for which the lane claims only more urgent tickets for now."""
        return _saturated(self.tenants, self.queue.of_tenants)

    def next_start(self) -> float | None:
        """Return the time of the next start, in seconds of the monotonic clock.

        Return None if all slots are used or if many runs wait. Many starts follow each other so
        closely that other work would never fit between them.
        """
        due = self.queue.next_due()
        if (
            due is None
            or len(self.queue) >= BATCHED_START_THRESHOLD
            or len(self.running) >= self.slots
        ):
            return None
        return self.clock.to_monotonic(due)

    def add(self, runs: Iterable[ClaimedRun]) -> None:
        """Queue claimed runs until their due time."""
        for run in runs:
            self.queue.push(run)
        self._wake.set()

    def remove_unstarted(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Remove and return the runs with these keys that have not started."""
        removed = self.queue.remove_keys(keys)
        if removed:  # no start will report this capacity to the claimers
            self._report_capacity()
        return removed

    async def run(self) -> None:
        """Start each attempt in a task. Return only by cancellation."""
        metrics.SLOTS.labels(self.lane).set(self.slots)
        metrics.ATTEMPTS_IN_FLIGHT.labels(self.lane).set_function(lambda: len(self.running))
        with self.timers(self._wake.set) as timer:
            while True:
                self._wake.clear()
                if self._is_late():  # the punctual runs of other lanes start first
                    await self.start_guard.wait_until_clear()
                wait = self._start_due()
                await (asyncio.sleep(0) if wait == 0 else self._sleep(wait, timer))

    def stop(self, key: RunKey, reason: str) -> None:
        """Cancel the unfinished attempts of a run.

        A synchronous task continues in its thread, and the executor ignores its result.
        """
        for run, task in self.running.items():
            if run.key == key and run not in self._stop_reasons:
                self._stop_reasons[run] = reason
                task.cancel()

    def close(self) -> None:
        """Start no more runs."""
        self._is_closed = True

    async def drain(self, seconds: float) -> None:
        """Wait for the unfinished attempts, and cancel the remaining ones after `seconds`."""
        self.close()
        if self.running:
            _, unfinished = await asyncio.wait(self.running.values(), timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def _report_capacity(self) -> None:
        for event in self._capacity_events:
            event.set()

    def _running_seconds(self) -> list[float]:
        """Return the seconds since the start of each unfinished attempt."""
        now = monotonic()
        return [now - started_at for started_at in self._started_at.values()]

    def _is_late(self) -> bool:
        due = self.queue.next_due()
        return due is not None and monotonic() - self.clock.to_monotonic(due) > LATE_AFTER

    def _start_due(self) -> float | None:
        """Start the due runs for which slots are free, at most MAX_STARTS_PER_ITERATION.

        Return the seconds until the next start, or None if only an event can permit it.
        """
        for _ in range(MAX_STARTS_PER_ITERATION):
            if self._is_closed or len(self.running) >= self.slots:
                return None
            due = self.queue.next_due()
            if due is None:
                return None
            if not self.clock.steady_for(self.steady_seconds):
                return CLOCK_CHECK_INTERVAL
            if (seconds_left := self.clock.to_monotonic(due) - monotonic()) > 0:
                return seconds_left
            self._start_or_defer(self.queue.pop(self.clock.now))
        return 0

    def _start_or_defer(self, run: ClaimedRun) -> None:
        # While fewer attempts run than one target may use, no target can have used its share.
        is_target_free = len(self.running) < self.bulkhead.max_running
        is_target_free = is_target_free or self.bulkhead.has_capacity(run.target_share)
        is_tenant_free = self.tenants.has_capacity(run.tenant)
        if is_target_free and is_tenant_free:
            self._start(run)
            return
        # The end of an attempt resumes one run. If that run may not start for the other reason, the
        # next deferred run takes its place.
        if is_tenant_free:
            self.queue.defer(run)
            self.queue.resume_tenant(run.tenant)
        else:
            self.queue.defer_tenant(run)
            if is_target_free:
                self.queue.resume(run.target_share)
        self._report_capacity()

    def _start(self, run: ClaimedRun) -> None:
        started_at = monotonic()
        self._report_capacity()
        task = asyncio.get_running_loop().create_task(self.attempts.run(run))
        if task.done():  # an eager task may end before `create_task` returns
            self._throughput.record(monotonic() - started_at)
            self.queue.resume(run.target_share)  # no slot becomes free, which would resume the run
            self.queue.resume_tenant(run.tenant)
            self._check_result(run, task)
        else:
            self.running[run], self._started_at[run] = task, started_at
            self.bulkhead.start(run.target_share, self._throughput.seconds)
            self.tenants.start(run.tenant, self._throughput.seconds)
            task.add_done_callback(lambda task: self._finish(run, task))

    def _finish(self, run: ClaimedRun, task: asyncio.Task[None]) -> None:
        del self.running[run]
        seconds = monotonic() - self._started_at.pop(run)
        self._throughput.record(seconds)
        self.bulkhead.finish(run.target_share, seconds)
        self.tenants.finish(run.tenant, seconds)
        self.queue.resume(run.target_share)
        self.queue.resume_tenant(run.tenant)
        self._check_result(run, task)
        self._wake.set()

    def _resume_tenant(self, tenant: str) -> None:
        """Resume a run that was deferred because other lanes used the quota of its tenant."""
        self.queue.resume_tenant(tenant)
        self._wake.set()

    def _check_result(self, run: ClaimedRun, task: asyncio.Task[None]) -> None:
        """Complete a stopped attempt. Give up the claim after an unexpected error.

        An attempt without a stop reason is cancelled only at shutdown, and its lease then expires.
        """
        reason = self._stop_reasons.pop(run, None)
        try:
            task.result()
        except asyncio.CancelledError:
            if reason is not None:
                self.attempts.stop(run, reason)
        except Exception:
            log.exception("attempt abandoned", run=str(run.key))
            self.attempts.abandon(run)

    async def _sleep(self, seconds: float | None, timer: Timer) -> None:
        """Sleep until a claim, the end of an attempt or the timer wakes the lane."""
        if seconds is None:
            timer.clear()
        else:
            timer.set(max(seconds, min_sleep(len(self.queue))))
        await self._wake.wait()


def _saturated(bulkhead: TargetBulkhead, deferred: DeferredRuns) -> dict[str, datetime]:
    """Return the names without capacity that have enough deferred runs, with a start rank.

    A ticket with a lower rank must start before these runs.
    """
    counts = deferred.counts()
    if not counts:
        return {}
    return {
        name: EARLIEST_RANK
        if counts[name] >= MAX_DEFERRED_FACTOR * enough
        else deferred.rank(name, enough - 1)
        for name, enough in bulkhead.saturated(counts).items()
    }
