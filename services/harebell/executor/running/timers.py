"""Timers that wake a lane: timerfd timers of Linux, or timers of the event loop.

The event loop has timers of whole milliseconds and calls back at once if less than half a
millisecond is left. A timerfd timer is accurate to the microsecond and needs Python 3.13.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol, TypeAlias

MIN_TIMERFD_SECONDS: Final = 1e-6  # a timerfd timer that is set to zero never expires
EXPIRATION_COUNT_BYTES: Final = 8  # the descriptor stays readable until this number is read


class Timer(Protocol):
    """A timer that calls back once. A new `set` replaces the earlier one."""

    def set(self, seconds: float) -> None:
        """Call back after `seconds`. The call may come slightly early, so check the clock."""

    def clear(self) -> None: ...


TimerFactory: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[Timer]]


class LoopTimer:
    """A timer of the event loop."""

    def __init__(self, on_expiry: Callable[[], None]) -> None:
        self._on_expiry = on_expiry
        self._handle: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        self.clear()
        self._handle = asyncio.get_running_loop().call_later(seconds, self._on_expiry)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class TimerfdTimer:
    """A timerfd timer, whose descriptor the event loop watches like a socket."""

    def __init__(self, on_expiry: Callable[[], None], descriptor: int) -> None:
        self._on_expiry = on_expiry
        self._descriptor = descriptor

    def set(self, seconds: float) -> None:
        os.timerfd_settime(self._descriptor, initial=max(seconds, MIN_TIMERFD_SECONDS))

    def clear(self) -> None:
        os.timerfd_settime(self._descriptor, initial=0)

    def on_readable(self) -> None:
        """Call back, unless the timer was set again after it expired."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, EXPIRATION_COUNT_BYTES)
            self._on_expiry()


@contextmanager
def loop_timer(on_expiry: Callable[[], None]) -> Iterator[Timer]:
    """Open a timer of the event loop."""
    timer = LoopTimer(on_expiry)
    try:
        yield timer
    finally:
        timer.clear()


@contextmanager
def best_timer(on_expiry: Callable[[], None]) -> Iterator[Timer]:
    """Open the most accurate timer of this platform and this Python version."""
    if not hasattr(os, "timerfd_create"):
        with loop_timer(on_expiry) as timer:
            yield timer
        return
    loop = asyncio.get_running_loop()
    descriptor = os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    timerfd_timer = TimerfdTimer(on_expiry, descriptor)
    loop.add_reader(descriptor, timerfd_timer.on_readable)
    try:
        yield timerfd_timer
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
