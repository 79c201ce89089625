"""Starting claimed runs on their instant, never before, as many at once as there are slots."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import Histogram

from harebell.contract.identity import RunKey
from harebell.contract.names import Lane
from harebell.executor.alarms import Alarm, Alarms, loop_alarm
from harebell.executor.core import FEW, Claimed, Pace, StartHeap, doze
from harebell.executor.lulls import Lulls
from harebell.executor.sharing import Shares
from harebell.executor.targets.attempt import Attempt
from harebell.executor.targets.outcome import Ended, Stopped
from harebell.executor.targets.perform import Targets, perform
from harebell.kernel import failpoint, metrics
from harebell.kernel.clock import Clock, monotonic
from harebell.kernel.retry import EXPIRED, Failure

UNSTEADY: Final = 1.0  # seconds between looks whether the clock is steady again
AT_A_TIME: Final = 16  # starts of a lane before others get their turn
LATE: Final = 0.05  # seconds, of what waits longest: it is a backlog
RENEW_AGAIN: Final = 0.05  # seconds before a refused renewal is tried again

log = structlog.get_logger()


@dataclass(slots=True)
class LaneRunner:
    """One lane of this executor: its heap, its slots, its attempts."""

    lane: Lane
    slots: int
    shares: Shares
    clock: Clock
    targets: Targets
    steady: float  # seconds that the clock must have been without a step
    renew: Callable[[Claimed], Awaitable[bool]]  # False: refused
    settle: Callable[[Claimed, Ended], None]
    abandon: Callable[[Claimed], None]
    lets_start: Callable[[Claimed], Awaitable[bool]]  # False: it is ours no longer
    lulls: Lulls = field(default_factory=Lulls)
    alarms: Alarms = loop_alarm
    on_room: Callable[[], None] = lambda: None  # set by whoever claims for it
    heap: StartHeap = field(default_factory=StartHeap)
    running: dict[Claimed, asyncio.Task[None]] = field(default_factory=dict)
    closing: bool = False
    _stopping: dict[Claimed, str] = field(default_factory=dict)  # why
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _began: dict[Claimed, float] = field(default_factory=dict)  # of those running
    _pace: Pace = field(init=False)
    _lateness: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.slots)
        self._lateness = metrics.LATENESS.labels(self.lane)

    def room(self) -> int:
        moment = monotonic()
        running = [moment - began for began in self._began.values()]
        return self._pace.room(len(self.heap), running, is_late=self._is_late())

    def _is_late(self) -> bool:
        due = self.heap.next_due()
        return due is not None and monotonic() - self.clock.moment(due) > LATE

    def next_start(self) -> float | None:
        """The moment for which others should keep the loop free; None in a crowd, or without slots.

        In a crowd starts are not a moment apart, and to keep free of each would be never to work.
        """
        due = self.heap.next_due()
        if due is None or len(self.heap) >= FEW or len(self.running) >= self.slots:
            return None
        return self.clock.moment(due)

    def take(self, runs: Iterable[Claimed]) -> None:
        for run in runs:
            self.heap.push(run)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        metrics.SLOTS.labels(self.lane).set(self.slots)
        metrics.IN_FLIGHT.labels(self.lane).set_function(lambda: len(self.running))
        with self.alarms(self._wake.set) as alarm:
            while True:
                self._wake.clear()
                if self._is_late():  # what is punctual in other lanes starts first
                    await self.lulls.lull()
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
            if (early := self.clock.moment(due) - monotonic()) > 0:
                return early
            self._start_or_set_aside(self.heap.pop())
        return 0

    def _start_or_set_aside(self, run: Claimed) -> None:
        if len(self.running) < self.shares.most or self.shares.has_room(run.downstream):
            self._start(run)
        else:
            self.heap.set_aside(run)
            self.on_room()

    def crowded(self) -> frozenset[str]:
        """Targets of which nothing more is to be claimed for a while."""
        return self.shares.crowded(self.heap.aside())

    async def _sleep(self, seconds: float | None, alarm: Alarm) -> None:
        """Until woken: by a claim, a slot, or the time."""
        if seconds is None:
            alarm.clear()
        else:
            alarm.set(max(seconds, doze(len(self.heap))))
        await self._wake.wait()

    def _start(self, run: Claimed) -> None:
        began = monotonic()
        self.on_room()
        task = asyncio.get_running_loop().create_task(self._guarded(run))
        if task.done():  # an eager task may have ended already
            self._pace.ended(monotonic() - began)
            self.heap.bring_back(run.downstream)  # it had no slot whose end would do so
        else:
            self.running[run], self._began[run] = task, began
            self.shares.began(run.downstream, self._pace.seconds)
            task.add_done_callback(lambda _: self._ended(run))

    def stop(self, key: RunKey, reason: str) -> None:
        """Cancel its attempts that run here; a plain task goes on in its thread, unheard."""
        for run, task in self.running.items():
            if run.key == key and run not in self._stopping:
                self._stopping[run] = reason
                task.cancel()

    def _ended(self, run: Claimed) -> None:
        self.running.pop(run, None)
        took = monotonic() - self._began.pop(run)
        self._pace.ended(took)
        self.shares.ended(run.downstream, took)
        self.heap.bring_back(run.downstream)
        self._stopping.pop(run, None)
        self._wake.set()

    async def _guarded(self, run: Claimed) -> None:
        """A fault of ours must not keep the lease for ever: unrenewed, the sweep takes the run."""
        try:
            await self._attempt(run)
        except asyncio.CancelledError:
            reason = self._stopping.get(run)
            if reason is None:  # this executor ends: the lease lapses
                raise
            self.settle(run, Stopped(reason))
        except Exception:
            log.exception("attempt abandoned", run=str(run.key))
            self.abandon(run)

    async def _attempt(self, run: Claimed) -> None:
        while not (run.is_fresh(monotonic()) or await self.renew(run)):
            if monotonic() >= run.lease_ends:
                break
            await asyncio.sleep(RENEW_AGAIN)  # what was taken away must not start, however late
        if run.ticket.work.limit is not None and not await self.lets_start(run):
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
        attempt = Attempt(ticket, run.attempt, run.token)
        timeout = ticket.work.timeout.total_seconds()
        outcome = await perform(ticket.work.target, attempt, timeout, self.targets)
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
