"""An event loop in virtual time: its clock jumps to the next timer, and its processes can stop."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from harebell.runtime import clock

PROCESS: Final[ContextVar["StoppableProcess | None"]] = ContextVar("process", default=None)


class NothingScheduled(Exception):
    """The state of a loop without a callback and without a timer."""


class StoppableProcess:
    """A context whose callbacks can stop between any two steps, as a process after SIGSTOP."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._deferred: list[ScheduledCallback] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def stop(self) -> None:
        self.is_stopped = True

    def resume(self, loop: "VirtualLoop") -> None:
        self.is_stopped = False
        callbacks, self._deferred = self._deferred, []
        for callback in callbacks:
            loop.reschedule(callback)

    def call_soon(self, callback: Callable[..., object]) -> None:
        """Run the callback in this process, after its end of a stop."""
        asyncio.get_running_loop().call_soon(callback, context=self.context.copy())

    def defer(self, callback: "ScheduledCallback") -> None:
        self._deferred.append(callback)


class ScheduledCallback:
    """A future callback of a process, which never runs after its cancellation."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled", "process")

    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, context: Context
    ) -> None:
        self._when = when
        self.callback = callback
        self.args = args
        self.context = context
        self.process = context.get(PROCESS)
        self.is_cancelled = False

    def when(self) -> float:
        return self._when

    def cancelled(self) -> bool:
        return self.is_cancelled

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback = self.args = None  # type: ignore[assignment]  # frees the objects


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number.

    The hash of an address would order the tasks of a set differently in each process.
    """

    def __init__(self, number: int, coro: Any, **more: Any) -> None:
        self._number = number
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop that runs ready callbacks in their order, and then moves its time to the next timer.

    `_run_once` of the base class would use a selector at each step, which doubles the CPU time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stopping = False  # the base class sets it
        self._now = 0.0
        self._ready_callbacks: deque[ScheduledCallback] = deque()
        self._timers: list[tuple[float, int, ScheduledCallback]] = []
        self._numbers = count()
        self.set_task_factory(self._numbered_task)

    def _numbered_task(
        self, _: asyncio.AbstractEventLoop, coro: Any, **more: Any
    ) -> "NumberedTask":
        return NumberedTask(next(self._numbers), coro, loop=self, **more)

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def _run_once(self) -> None:
        """Run callbacks until the loop stops. An exception of a callback ends the simulation."""
        ready = self._ready_callbacks
        while not self._stopping:
            callback = ready.popleft() if ready else self._next_timer()
            if callback.is_cancelled:
                continue
            if callback.process is not None and callback.process.is_stopped:
                callback.process.defer(callback)
            else:
                callback.context.run(callback.callback, *callback.args)

    def _next_timer(self) -> ScheduledCallback:
        """Return the first timer and move the time to it, unless the timer is cancelled."""
        if not self._timers:
            raise NothingScheduled
        when, _, callback = heappop(self._timers)
        if when > self._now and not callback.is_cancelled:
            self._now = when
        return callback

    def reschedule(self, callback: ScheduledCallback) -> None:
        self._ready_callbacks.append(callback)

    def call_soon(  # type: ignore[override]  # typeshed ties the types of the arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCallback:
        own_context = copy_context() if context is None else context
        scheduled = ScheduledCallback(self._now, callback, args, own_context)
        self._ready_callbacks.append(scheduled)
        return scheduled

    def call_at(  # type: ignore[override]  # typeshed ties the types of the arguments
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> ScheduledCallback:
        own_context = copy_context() if context is None else context
        scheduled = ScheduledCallback(when, callback, args, own_context)
        heappush(self._timers, (when, next(self._numbers), scheduled))
        return scheduled

    def call_later(  # type: ignore[override]  # typeshed ties the types of the arguments
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> ScheduledCallback:
        return self.call_at(self._now + delay, callback, *args, context=context)


class _VirtualTime:
    """The replacement of the module `time` in `runtime/clock.py`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = loop.time


@contextmanager
def virtual_time() -> Generator[VirtualLoop]:
    """Yield a loop whose time is the only time of the services."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)  # a crash leaves tasks without a result
    with patch.object(clock, "time", _VirtualTime(loop)):
        try:
            yield loop
        finally:
            loop.close()
