"""The only clock: the time of the database for schedules, the monotonic clock for waits."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.errors import Transient

REFRESH_INTERVAL: Final = 5.0  # seconds between two readings of the database clock
SAMPLES_PER_REFRESH: Final = 5  # readings, of which the one with the shortest round trip counts
MAX_DRIFT: Final = 2.0  # seconds; a larger change between two readings is a clock step

ReadDatabaseTime = Callable[[], Awaitable[datetime]]


def monotonic() -> float:
    """Return the monotonic time [s], which leases, timeouts and waits use."""
    return time.monotonic()


def thread_cpu() -> float:
    """Return the CPU time of this thread [s], which other processes do not increase."""
    return time.thread_time()


class Clock:
    """The time of the database, extrapolated with the monotonic clock of this process.

    The time is never early: a reading counts from the end of its round trip. A wait for a time of
    this clock therefore ends after that time on the database clock.
    """

    def __init__(self, read: ReadDatabaseTime) -> None:
        self._read = read
        self._base: datetime | None = None
        self._base_at = 0.0
        self.stepped_at: float | None = None  # monotonic time of the last clock step

    def now(self) -> datetime:
        return self.from_monotonic(monotonic())

    def from_monotonic(self, seconds: float) -> datetime:
        """Return the database time at a monotonic time."""
        if self._base is None:
            raise RuntimeError("The clock must be refreshed before its first use.")
        return self._base + timedelta(seconds=seconds - self._base_at)

    def to_monotonic(self, when: datetime) -> float:
        """Return the monotonic time [s] at a database time."""
        if self._base is None:
            raise RuntimeError("The clock must be refreshed before its first use.")
        return self._base_at + (when - self._base).total_seconds()

    def age(self) -> float:
        """Return the seconds since the last reading of the database clock."""
        return monotonic() - self._base_at

    def steady_for(self, seconds: float) -> bool:
        """Return whether no clock step occurred within the last `seconds`."""
        return self.stepped_at is None or monotonic() - self.stepped_at >= seconds

    async def refresh(self) -> None:
        """Read the database clock. Raise its error and keep the last reading if that fails."""
        best: tuple[float, datetime, float] | None = None
        for _ in range(SAMPLES_PER_REFRESH):
            sent_at = monotonic()
            database_time = await self._read()
            received_at = monotonic()
            if best is None or received_at - sent_at < best[0]:
                best = (received_at - sent_at, database_time, received_at)
        assert best is not None  # noqa: S101  # SAMPLES_PER_REFRESH is positive
        _, database_time, received_at = best
        if self._base is not None:
            drift = abs((database_time - self.from_monotonic(received_at)).total_seconds())
            if drift > MAX_DRIFT:
                self.stepped_at = monotonic()
        self._base, self._base_at = database_time, received_at

    async def run(self) -> None:
        """Refresh until the task is cancelled. Keep the last reading during an outage."""
        while True:
            await asyncio.sleep(REFRESH_INTERVAL)
            try:
                await self.refresh()
            except Transient:
                continue
