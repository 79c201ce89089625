"""One circuit breaker: when it opens, whom it lets through to probe, when it closes. Pure."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.breakers import BreakerState
from harebell.contract.types import EARLIEST, MILLISECOND, truncate_ms

PARTS: Final = 10  # of a window: what is older than all of them goes a part at a time
BETWEEN_PROBES: Final = timedelta(seconds=5)  # before what waits for probes is looked at again


@dataclass(frozen=True, slots=True)
class BreakerConfig:
    """When `ratio` of at least `attempts` within the `window` have failed, for `rest` none is made.

    Then `probes` runs are let through: so many successes close it, one failure opens it again.
    """

    window: timedelta = timedelta(seconds=60)
    min_calls: int = 20
    failure_ratio: float = 0.5
    open_duration: timedelta = timedelta(seconds=30)
    half_open_calls: int = 3


@dataclass(slots=True)
class _Part:
    number: int
    failed: int = 0
    attempts: int = 0


@dataclass(slots=True)
class FailureWindow:
    """Attempts of the last while, counted in parts, so that it is as small for many as for few."""

    length: timedelta
    _parts: deque[_Part] = field(default_factory=lambda: deque(maxlen=PARTS))

    def count(self, now: datetime, *, healthy: bool) -> None:
        number = self._number(now)
        if not self._parts or self._parts[-1].number < number:
            self._parts.append(_Part(number))
        part = self._parts[-1]  # also for one that is told late
        part.attempts += 1
        part.failed += not healthy

    def total(self, now: datetime) -> tuple[int, int]:
        """How many failed, of how many."""
        first = self._number(now) - PARTS
        recent = [part for part in self._parts if part.number > first]
        return sum(part.failed for part in recent), sum(part.attempts for part in recent)

    def clear(self) -> None:
        self._parts.clear()

    def _number(self, moment: datetime) -> int:
        return (moment - EARLIEST) // (self.length / PARTS)


@dataclass(slots=True)
class Breaker:
    """Of one downstream. Each transition has a `since` of its own, later than the one before."""

    rule: BreakerConfig
    state: BreakerState = BreakerState.CLOSED
    since: datetime = EARLIEST
    failed: int = 0  # of `attempts`, as it last opened
    attempts: int = 0
    window: FailureWindow = field(init=False)
    _let_through: int = 0
    _succeeded: int = 0
    _probing_since: datetime = EARLIEST

    def __post_init__(self) -> None:
        self.window = FailureWindow(self.rule.window)

    def record_outcome(self, now: datetime, *, healthy: bool) -> None:
        """An attempt has ended. While open nothing is concluded: it had begun before."""
        match self.state:
            case BreakerState.CLOSED:
                self.window.count(now, healthy=healthy)
                self._judge_window(now)
            case BreakerState.HALF_OPEN if not healthy:
                self.failed, self.attempts = 1, self._succeeded + 1
                self._become(BreakerState.OPEN, now)
            case BreakerState.HALF_OPEN:
                self._succeeded += 1
                if self._succeeded >= self.rule.half_open_calls:
                    self._become(BreakerState.CLOSED, now)
            case BreakerState.OPEN:
                pass

    def deferral(self, now: datetime) -> timedelta | None:
        """How long a ticket is to wait; None: it may leave, as a probe where it is half open."""
        if self.state is BreakerState.CLOSED:
            return None
        if self.state is BreakerState.OPEN:
            rests = self.since + self.rule.open_duration - now
            if rests > timedelta(0):
                return rests
            self._become(BreakerState.HALF_OPEN, now)
        if (
            now - self._probing_since >= self.rule.open_duration
        ):  # nothing came of the last: try others
            self._probe(now)
        if self._let_through >= self.rule.half_open_calls:
            return BETWEEN_PROBES
        self._let_through += 1
        return None

    def apply_remote_state(
        self, state: BreakerState, since: datetime, *, failed: int, attempts: int
    ) -> None:
        """What another dispatcher has found, if it is newer than what is known here."""
        if since > self.since:
            self.failed, self.attempts = failed, attempts
            self._become(state, since)

    def can_be_dropped(self, now: datetime, *, after: timedelta) -> bool:
        """Nothing is to be said of it that would not be so of one that was never heard of."""
        is_quiet = self.window.total(now)[0] == 0
        return self.state is BreakerState.CLOSED and is_quiet and now - self.since > after

    def _judge_window(self, now: datetime) -> None:
        failed, attempts = self.window.total(now)
        if attempts >= self.rule.min_calls and failed >= self.rule.failure_ratio * attempts:
            self.failed, self.attempts = failed, attempts
            self._become(BreakerState.OPEN, now)

    def _become(self, state: BreakerState, now: datetime) -> None:
        self.state = state
        self.since = max(truncate_ms(now), self.since + MILLISECOND)
        self.window.clear()
        self._probe(now)

    def _probe(self, now: datetime) -> None:
        self._probing_since = now
        self._let_through = self._succeeded = 0
