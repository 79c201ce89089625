"""The only clock. Schedules live in the database's time; waits are made on the monotonic clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.errors import Transient

REFRESH: Final = 5.0  # seconds between readings of the database's clock
SAMPLES: Final = 5  # readings a refresh; the quickest round trip is believed
MAX_DRIFT: Final = 2.0  # seconds that the offset may move between readings before it is a step

ReadDatabaseTime = Callable[[], Awaitable[datetime]]


def monotonic() -> float:
    """Seconds; never stepped. Leases, timeouts and waits are reckoned in it."""
    return time.monotonic()


class Clock:
    """The database's time, told from this process's monotonic clock.

    Errs on the late side: a reading counts from the end of its round trip, so what waits for an
    instant by this clock never starts before that instant on the database's.
    """

    def __init__(self, read: ReadDatabaseTime) -> None:
        self._read = read
        self._base: datetime | None = None
        self._at = 0.0
        self.stepped_at: float | None = None  # monotonic time of the last step

    def now(self) -> datetime:
        return self.from_monotonic(monotonic())

    def from_monotonic(self, moment: float) -> datetime:
        """The database's time at a moment of the monotonic clock."""
        if self._base is None:
            raise RuntimeError("the clock has not been set")
        return self._base + timedelta(seconds=moment - self._at)

    def to_monotonic(self, when: datetime) -> float:
        """The moment of the monotonic clock at an instant of the database's time."""
        if self._base is None:
            raise RuntimeError("the clock has not been set")
        return self._at + (when - self._base).total_seconds()

    def age(self) -> float:
        """Seconds since the database last told the time."""
        return monotonic() - self._at

    def steady_for(self, seconds: float) -> bool:
        """Whether no step was seen for that long."""
        return self.stepped_at is None or monotonic() - self.stepped_at >= seconds

    async def refresh(self) -> None:
        """Raises what reading raises; the clock then goes on by its last reading."""
        best: tuple[float, datetime, float] | None = None
        for _ in range(SAMPLES):
            asked = monotonic()
            told = await self._read()
            answered = monotonic()
            if best is None or answered - asked < best[0]:
                best = (answered - asked, told, answered)
        assert best is not None  # noqa: S101  # SAMPLES is not zero
        _, told, answered = best
        if self._base is not None:
            moved = abs((told - self.from_monotonic(answered)).total_seconds())
            if moved > MAX_DRIFT:
                self.stepped_at = monotonic()
        self._base, self._at = told, answered

    async def run(self) -> None:
        """Refresh for ever; an unreachable database leaves the last reading in force."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self.refresh()
            except Transient:
                continue
