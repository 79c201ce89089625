"""The start guard, which delays blocking work until an imminent start has happened."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from harebell.runtime.clock import monotonic

# Seconds for which a claim, a renewal, a completion or the parsing of a batch may block the loop.
MAX_BLOCK: Final = 0.002
START_GRACE: Final = 0.001  # seconds after its due time within which a run starts if a slot is free
MAX_WAITERS: Final = 8  # steps that wait; more waiting steps would delay the work itself


@dataclass(slots=True)
class StartGuard:
    """The next starts of all lanes, and the steps that wait for them (decision 22)."""

    _next_starts: list[Callable[[], float | None]] = field(default_factory=list)
    _waiters: int = 0
    _turnstile: asyncio.Lock = field(default_factory=asyncio.Lock)  # one waiting step at a time

    def watch(self, next_start: Callable[[], float | None]) -> None:
        """Register a function that returns the next start of a lane, or None.

        The time is in seconds of the monotonic clock.
        """
        self._next_starts.append(next_start)

    async def wait_until_clear(self) -> None:
        """Wait while a run is due within MAX_BLOCK, until that run has started.

        Return at once if no start is that near, or if MAX_WAITERS steps wait already. Each call
        waits at most once, so that continuous starts delay no step for long.
        """
        if self._waiters >= MAX_WAITERS or (not self._waiters and self._seconds_left() <= 0):
            return
        self._waiters += 1
        try:
            async with self._turnstile:
                if (seconds := self._seconds_left()) > 0:
                    await asyncio.sleep(seconds)
        finally:
            self._waiters -= 1

    def _seconds_left(self) -> float:
        """Return the seconds until every imminent run has started."""
        now = monotonic()
        starts = [next_start() for next_start in self._next_starts]
        imminent = [
            start
            for start in starts
            if start is not None and -START_GRACE < start - now < MAX_BLOCK
        ]
        return max(imminent, default=now - START_GRACE) + START_GRACE - now
