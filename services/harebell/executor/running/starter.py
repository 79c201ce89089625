"""Starting claimed runs on their instant, never before, as many at once as there are slots."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import Histogram

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.domain.retry import EXPIRED, Failure
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.start_queue import BATCHED_START_THRESHOLD, StartQueue, min_sleep
from harebell.executor.model.throughput import ThroughputEstimate
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.target_bulkhead import TargetBulkhead
from harebell.executor.running.timers import Timer, TimerFactory, loop_timer
from harebell.executor.targets.attempt import AttemptContext, AttemptOutcome, Stopped
from harebell.executor.targets.call import Targets, call_target
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic

UNSTEADY: Final = 1.0  # seconds between looks whether the clock is steady again
AT_A_TIME: Final = 16  # starts of a lane before others get their turn
LATE: Final = 0.05  # seconds, of what waits longest: it is a backlog
RENEW_AGAIN: Final = 0.05  # seconds before a refused renewal is tried again

log = structlog.get_logger()


@dataclass(slots=True)
class LaneStarter:
    """One lane of this executor: its heap, its slots, its attempts."""

    lane: Lane
    slots: int
    bulkhead: TargetBulkhead
    clock: Clock
    targets: Targets
    steady: float  # seconds that the clock must have been without a step
    renew: Callable[[ClaimedRun], Awaitable[bool]]  # False: refused
    settle: Callable[[ClaimedRun, AttemptOutcome], None]
    abandon: Callable[[ClaimedRun], None]
    lets_start: Callable[[ClaimedRun], Awaitable[bool]]  # False: it is ours no longer
    lulls: StartGuard = field(default_factory=StartGuard)
    alarms: TimerFactory = loop_timer
    capacity_changed: Callable[[], None] = lambda: None  # set by whoever claims for it
    heap: StartQueue = field(default_factory=StartQueue)
    running: dict[ClaimedRun, asyncio.Task[None]] = field(default_factory=dict)
    closing: bool = False
    _stopping: dict[ClaimedRun, str] = field(default_factory=dict)  # why
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _began: dict[ClaimedRun, float] = field(default_factory=dict)  # of those running
    _pace: ThroughputEstimate = field(init=False)
    _lateness: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self._pace = ThroughputEstimate(self.slots)
        self._lateness = metrics.START_LATENESS.labels(self.lane)

    def capacity(self) -> int:
        moment = monotonic()
        running = [moment - began for began in self._began.values()]
        return self._pace.capacity(len(self.heap), running, is_late=self._is_late())

    def _is_late(self) -> bool:
        due = self.heap.next_due()
        return due is not None and monotonic() - self.clock.to_monotonic(due) > LATE

    def next_start(self) -> float | None:
        """The moment for which others should keep the loop free; None in a crowd, or without slots.

        In a crowd starts are not a moment apart, and to keep free of each would be never to work.
        """
        due = self.heap.next_due()
        if (
            due is None
            or len(self.heap) >= BATCHED_START_THRESHOLD
            or len(self.running) >= self.slots
        ):
            return None
        return self.clock.to_monotonic(due)

    def add(self, runs: Iterable[ClaimedRun]) -> None:
        for run in runs:
            self.heap.push(run)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        metrics.SLOTS.labels(self.lane).set(self.slots)
        metrics.ATTEMPTS_IN_FLIGHT.labels(self.lane).set_function(lambda: len(self.running))
        with self.alarms(self._wake.set) as alarm:
            while True:
                self._wake.clear()
                if self._is_late():  # what is punctual in other lanes starts first
                    await self.lulls.wait_until_clear()
                wait = self._start_due()
                await (asyncio.sleep(0) if wait == 0 else self._sleep(wait, alarm))

    def _start_due(self) -> float | None:
        """Start what is due while there are slots; seconds until there is more to do.

        Only a few at a time: a crowd of one lane must not make those of another late.
        """
        for _ in range(AT_A_TIME):
            if self.closing or len(self.running) >= self.slots:
                return None
            due = self.heap.next_due()
            if due is None:
                return None
            if not self.clock.steady_for(self.steady):
                return UNSTEADY
            if (early := self.clock.to_monotonic(due) - monotonic()) > 0:
                return early
            self._start_or_set_aside(self.heap.pop())
        return 0

    def _start_or_set_aside(self, run: ClaimedRun) -> None:
        if len(self.running) < self.bulkhead.most or self.bulkhead.has_capacity(run.downstream):
            self._start(run)
        else:
            self.heap.defer(run)
            self.capacity_changed()

    def saturated_targets(self) -> frozenset[str]:
        """Targets of which nothing more is to be claimed for a while."""
        return self.bulkhead.saturated(self.heap.deferred_counts())

    async def _sleep(self, seconds: float | None, alarm: Timer) -> None:
        """Until woken: by a claim, a slot, or the time."""
        if seconds is None:
            alarm.clear()
        else:
            alarm.set(max(seconds, min_sleep(len(self.heap))))
        await self._wake.wait()

    def _start(self, run: ClaimedRun) -> None:
        began = monotonic()
        self.capacity_changed()
        task = asyncio.get_running_loop().create_task(self._guarded(run))
        if task.done():  # an eager task may have ended already
            self._pace.record(monotonic() - began)
            self.heap.resume(run.downstream)  # it had no slot whose end would do so
        else:
            self.running[run], self._began[run] = task, began
            self.bulkhead.began(run.downstream, self._pace.seconds)
            task.add_done_callback(lambda _: self._ended(run))

    def stop(self, key: RunKey, reason: str) -> None:
        """Cancel its attempts that run here; a plain task goes on in its thread, unheard."""
        for run, task in self.running.items():
            if run.key == key and run not in self._stopping:
                self._stopping[run] = reason
                task.cancel()

    def _ended(self, run: ClaimedRun) -> None:
        self.running.pop(run, None)
        took = monotonic() - self._began.pop(run)
        self._pace.record(took)
        self.bulkhead.ended(run.downstream, took)
        self.heap.resume(run.downstream)
        self._stopping.pop(run, None)
        self._wake.set()

    async def _guarded(self, run: ClaimedRun) -> None:
        """A fault of ours must not keep the lease for ever: unrenewed, the sweep takes the run."""
        try:
            await self.run_attempt(run)
        except asyncio.CancelledError:
            reason = self._stopping.get(run)
            if reason is None:  # this executor ends: the lease lapses
                raise
            self.settle(run, Stopped(reason))
        except Exception:
            log.exception("attempt abandoned", run=str(run.key))
            self.abandon(run)

    async def run_attempt(self, run: ClaimedRun) -> None:
        while not (run.is_fresh(monotonic()) or await self.renew(run)):
            if monotonic() >= run.lease_ends:
                break
            await asyncio.sleep(RENEW_AGAIN)  # what was taken away must not start, however late
        if run.ticket.run_spec.rate_limit is not None and not await self.lets_start(run):
            return
        if monotonic() >= run.lease_ends:
            log.warning("not started: the lease has ended", run=str(run.key))
            self.abandon(run)
            return
        now = run.started_at = self.clock.now()
        ticket = run.ticket
        self._lateness.observe((now - ticket.due_at).total_seconds())
        if ticket.expires_at is not None and now >= ticket.expires_at:
            self.settle(run, Failure(EXPIRED, "its time has passed", retryable=False))
            return
        await failpoint.reach("executor.before_effect")
        attempt = AttemptContext(ticket, run.attempt, run.token)
        timeout = ticket.run_spec.timeout.total_seconds()
        outcome = await call_target(ticket.run_spec.target, attempt, timeout, self.targets)
        await failpoint.reach("executor.after_effect")
        self.settle(run, outcome)

    async def drain(self, seconds: float) -> None:
        """Start nothing more; what runs may end within the grace."""
        self.closing = True
        if self.running:
            _, late = await asyncio.wait(self.running.values(), timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
