"""When to do what takes a turn of the loop: between two starts, never just before one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from harebell.runtime.clock import monotonic

MAX_BLOCK: Final = 0.002  # seconds that one turn may take: a claim, a renewal, a settle, a bundle
START_GRACE: Final = 0.001  # seconds after its instant, by which a run that could start has
MAX_WAITERS: Final = 8  # that wait for a lull; more would hold up the work itself


@dataclass(slots=True)
class StartGuard:
    """What each lane starts next, as moments of the monotonic clock; None: nothing to wait for."""

    next_starts: list[Callable[[], float | None]] = field(default_factory=list)
    _waiting: int = 0
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)  # for each looks again

    async def wait_until_clear(self) -> None:
        """Return at once, unless a start is due within a turn: then as soon as it has begun.

        Waits once, so that starts on each other's heels hold up nothing.
        """
        if self._waiting >= MAX_WAITERS or (not self._waiting and self._left() <= 0):
            return
        self._waiting += 1
        try:
            async with self._one:
                if (left := self._left()) > 0:
                    await asyncio.sleep(left)
        finally:
            self._waiting -= 1

    def _left(self) -> float:
        """Seconds until what is due within a turn has begun."""
        now = monotonic()
        starts = [next_start() for next_start in self.next_starts]
        near = [
            start
            for start in starts
            if start is not None and -START_GRACE < start - now < MAX_BLOCK
        ]
        return max(near, default=now - START_GRACE) + START_GRACE - now
