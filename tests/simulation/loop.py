"""An event loop whose clock jumps to what comes next, and whose processes can stand still."""

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

PROCESS: Final[ContextVar["Stoppable | None"]] = ContextVar("process", default=None)


class Stalled(Exception):
    """Nothing is left that could ever happen."""


class Stoppable:
    """What runs in its context may be stopped between any two steps, as a process by a signal."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._held_back: list[Step] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self, loop: "VirtualLoop") -> None:
        self.is_stopped = False
        steps, self._held_back = self._held_back, []
        for step in steps:
            loop.again(step)

    def soon(self, callback: Callable[..., object]) -> None:
        """Run in this process, when it can."""
        asyncio.get_running_loop().call_soon(callback, context=self.context.copy())

    def hold_back(self, step: "Step") -> None:
        self._held_back.append(step)


class Step:
    """A callback to come, and in whose process; one that is cancelled while held back never is."""

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
        self.callback = self.args = None  # type: ignore[assignment]  # no reference is left


class NumberedTask(asyncio.Task[Any]):
    """In sets by the order of its beginning: by its address, each time would be another world."""

    def __init__(self, number: int, coro: Any, **more: Any) -> None:
        self._number = number
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """What is ready, one after the other; when nothing is, time moves to the next timer.

    The base loop's own turn would ask a selector at each step: half of what a world costs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stopping = False  # the base loop says so
        self._moment = 0.0
        self._steps: deque[Step] = deque()
        self._timers: list[tuple[float, int, Step]] = []
        self._numbers = count()
        self.set_task_factory(self._numbered)

    def _numbered(self, _: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> "NumberedTask":
        return NumberedTask(next(self._numbers), coro, loop=self, **more)

    def time(self) -> float:
        return self._moment

    def get_debug(self) -> bool:
        return False

    def _run_once(self) -> None:
        """All there is, until it is told to stop. What a callback raises ends the simulation."""
        while not self._stopping:
            step = self._steps.popleft() if self._steps else self._next()
            if step.is_cancelled:
                continue
            if step.process is not None and step.process.is_stopped:
                step.process.hold_back(step)
            else:
                step.context.run(step.callback, *step.args)

    def _next(self) -> Step:
        """The first timer; a cancelled one moves no time."""
        if not self._timers:
            raise Stalled
        when, _, step = heappop(self._timers)
        if when > self._moment and not step.is_cancelled:
            self._moment = when
        return step

    def again(self, step: Step) -> None:
        self._steps.append(step)

    def call_soon(  # type: ignore[override]  # the library counts the arguments' types
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        step = Step(self._moment, callback, args, copy_context() if context is None else context)
        self._steps.append(step)
        return step

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Step:
        step = Step(when, callback, args, copy_context() if context is None else context)
        heappush(self._timers, (when, next(self._numbers), step))
        return step

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Step:
        return self.call_at(self._moment + delay, callback, *args, context=context)


class _Time:
    """In place of the module `time` where the one clock reads it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = loop.time


@contextmanager
def virtual_time() -> Generator[VirtualLoop]:
    """The loop's time is the only one that services know."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)  # of tasks that a crash left behind
    with patch.object(clock, "time", _Time(loop)):
        try:
            yield loop
        finally:
            loop.close()
