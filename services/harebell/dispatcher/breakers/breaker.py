"""The state machine of one circuit breaker: when it opens, probes and closes. Pure."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.breakers import BreakerReason, BreakerState
from harebell.contract.types import EARLIEST, MILLISECOND, truncate_ms

WINDOW_PARTS: Final = 10  # of a failure window, which forgets one part at a time
PROBE_INTERVAL: Final = timedelta(seconds=5)  # deferral of a ticket that waits for probes
MAX_FAILURE_GAP: Final = timedelta(hours=1)  # between two failures that are consecutive


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """The thresholds of a breaker.

    A closed breaker opens when `failure_ratio` of at least `min_calls` attempts within `window`
    have failed. With fewer attempts within `window`, `consecutive_failures` failures without a
    success between them open it, unless the number is 0.
    After `open_duration` it is half open and lets `half_open_calls` probes through.
    As many successes close it, and one failure opens it again.
    """

    window: timedelta = timedelta(seconds=60)
    min_calls: int = 20
    failure_ratio: float = 0.5
    consecutive_failures: int = 5
    open_duration: timedelta = timedelta(seconds=30)
    half_open_calls: int = 3


@dataclass(slots=True)
class _Part:
    number: int
    failed: int = 0
    attempts: int = 0


@dataclass(slots=True)
class FailureWindow:
    """Counts of recent attempts, in WINDOW_PARTS parts, so that its size is constant."""

    length: timedelta
    _parts: deque[_Part] = field(default_factory=lambda: deque(maxlen=WINDOW_PARTS))

    def count(self, now: datetime, *, healthy: bool) -> None:
        number = self._number(now)
        if not self._parts or self._parts[-1].number < number:
            self._parts.append(_Part(number))
        part = self._parts[-1]  # a late outcome also counts here
        part.attempts += 1
        part.failed += not healthy

    def total(self, now: datetime) -> tuple[int, int]:
        """Return the failed attempts and all attempts within the window."""
        first = self._number(now) - WINDOW_PARTS
        recent = [part for part in self._parts if part.number > first]
        return sum(part.failed for part in recent), sum(part.attempts for part in recent)

    def clear(self) -> None:
        self._parts.clear()

    def _number(self, time: datetime) -> int:
        return (time - EARLIEST) // (self.length / WINDOW_PARTS)


@dataclass(slots=True, kw_only=True)
class Breaker:
    """The breaker of one downstream, for one tenant or for all tenants.

    Each transition has its own time `since`, which is later than the time of the one before.
    `failed` and `attempts` are the counts at the last opening, and `reason` is its reason.
    """

    config: BreakerConfig
    state: BreakerState = BreakerState.CLOSED
    since: datetime = EARLIEST
    failed: int = 0
    attempts: int = 0
    reason: BreakerReason | None = None
    window: FailureWindow = field(init=False)
    _consecutive: int = 0  # failures since the last success
    _failed_at: datetime = EARLIEST  # the last of them
    _probes: int = 0
    _succeeded: int = 0
    _probing_since: datetime = EARLIEST

    def __post_init__(self) -> None:
        self.window = FailureWindow(self.config.window)

    def record_outcome(self, now: datetime, *, healthy: bool) -> None:
        """Count an ended attempt. An open breaker ignores it, because it started before."""
        match self.state:
            case BreakerState.CLOSED:
                self.window.count(now, healthy=healthy)
                self._count_consecutive(now, healthy=healthy)
                self._evaluate_counts(now)
            case BreakerState.HALF_OPEN if not healthy:
                self.open(now, BreakerReason.PROBE_FAILED, failed=1, attempts=self._succeeded + 1)
            case BreakerState.HALF_OPEN:
                self._succeeded += 1
                if self._succeeded >= self.config.half_open_calls:
                    self._change_state(BreakerState.CLOSED, now)
            case BreakerState.OPEN:
                pass

    def deferral(self, now: datetime) -> timedelta | None:
        """Return how long a ticket must wait, or None if it may leave.

        A ticket that leaves while the breaker is half open is a probe.
        """
        if self.state is BreakerState.CLOSED:
            return None
        if self.state is BreakerState.OPEN:
            remaining = self.since + self.config.open_duration - now
            if remaining > timedelta(0):
                return remaining
            self._change_state(BreakerState.HALF_OPEN, now)
        # Probes without an outcome must not keep the breaker half open forever.
        if now - self._probing_since >= self.config.open_duration:
            self._start_probing(now)
        if self._probes >= self.config.half_open_calls:
            return PROBE_INTERVAL
        self._probes += 1
        return None

    def open(self, now: datetime, reason: BreakerReason, *, failed: int, attempts: int) -> None:
        """Open the breaker for a reason, with the counts that explain it."""
        self.failed, self.attempts, self.reason = failed, attempts, reason
        self._change_state(BreakerState.OPEN, now)

    def next_probe_at(self) -> datetime | None:
        """Return the earliest time of the next probe of an open breaker."""
        is_open = self.state is BreakerState.OPEN
        return self.since + self.config.open_duration if is_open else None

    def apply_remote_state(
        self,
        state: BreakerState,
        since: datetime,
        *,
        failed: int,
        attempts: int,
        reason: BreakerReason | None = None,
    ) -> None:
        """Adopt the state that another dispatcher published, if it is newer."""
        if since > self.since:
            self.failed, self.attempts, self.reason = failed, attempts, reason
            self._change_state(state, since)

    def can_be_dropped(self, now: datetime, *, after: timedelta) -> bool:
        """Return whether a new breaker would behave in the same way."""
        counts = self._consecutive > 0 and now - self._failed_at <= MAX_FAILURE_GAP
        is_quiet = self.window.total(now)[0] == 0 and not counts
        return self.state is BreakerState.CLOSED and is_quiet and now - self.since > after

    def _count_consecutive(self, now: datetime, *, healthy: bool) -> None:
        if healthy or not self.config.consecutive_failures:
            self._consecutive = 0
            return
        is_after_gap = now - self._failed_at > MAX_FAILURE_GAP
        self._consecutive = 1 if is_after_gap else self._consecutive + 1
        self._failed_at = max(now, self._failed_at)

    def _evaluate_counts(self, now: datetime) -> None:
        """Open the breaker after too many failures.

        Busy downstreams have some consecutive failures by chance, so only the ratio opens theirs.
        """
        failed, attempts = self.window.total(now)
        limit = self.config.consecutive_failures
        if attempts >= self.config.min_calls:
            if failed >= self.config.failure_ratio * attempts:
                self.open(now, BreakerReason.FAILURE_RATIO, failed=failed, attempts=attempts)
        elif limit and self._consecutive >= limit:
            count = self._consecutive
            self.open(now, BreakerReason.CONSECUTIVE_FAILURES, failed=count, attempts=count)

    def _change_state(self, state: BreakerState, now: datetime) -> None:
        self.state = state
        self.since = max(truncate_ms(now), self.since + MILLISECOND)
        self.window.clear()
        self._consecutive = 0
        self._start_probing(now)

    def _start_probing(self, now: datetime) -> None:
        self._probing_since = now
        self._probes = self._succeeded = 0
