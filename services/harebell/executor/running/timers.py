"""Waking a lane at a moment: by a timer of the system where Python has those, else of the loop.

Timers of the loop end on whole milliseconds, or at once when less than half of one is left. Those
of the system, which Python has from 3.13 on, end on the microsecond.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol, TypeAlias

SOONEST: Final = 1e-6  # seconds; a timer of the system that is set to none never ends
COUNT_BYTES: Final = 8  # how often it has ended; it goes on telling until that is read


class Timer(Protocol):
    """Rings once; to set it is to forget what it was set to."""

    def set(self, seconds: float) -> None:
        """It may ring a little too soon: who waits looks at the clock, and sets it again."""

    def clear(self) -> None: ...


TimerFactory: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[Timer]]


class LoopTimer:
    """A timer of the loop."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        self.clear()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class TimerfdTimer:
    """A timer of the system, of which the loop hears as of a socket."""

    def __init__(self, ring: Callable[[], None], timer: int) -> None:
        self._ring = ring
        self._timer = timer

    def set(self, seconds: float) -> None:
        os.timerfd_settime(self._timer, initial=max(seconds, SOONEST))

    def clear(self) -> None:
        os.timerfd_settime(self._timer, initial=0)

    def on_end(self) -> None:
        with suppress(BlockingIOError):  # set again since it ended
            os.read(self._timer, COUNT_BYTES)
            self._ring()


@contextmanager
def loop_timer(ring: Callable[[], None]) -> Iterator[Timer]:
    alarm = LoopTimer(ring)
    try:
        yield alarm
    finally:
        alarm.clear()


@contextmanager
def best_timer(ring: Callable[[], None]) -> Iterator[Timer]:
    """The finest that this system and this Python have."""
    if not hasattr(os, "timerfd_create"):
        with loop_timer(ring) as alarm:
            yield alarm
        return
    loop = asyncio.get_running_loop()
    timer = os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    system_alarm = TimerfdTimer(ring, timer)
    loop.add_reader(timer, system_alarm.on_end)
    try:
        yield system_alarm
    finally:
        loop.remove_reader(timer)
        os.close(timer)
