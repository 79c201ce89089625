"""An event loop whose clock jumps to what comes next, and whose processes can stand still."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from harebell.kernel import clock

PROCESS: Final[ContextVar["Stoppable | None"]] = ContextVar("process", default=None)


class Stalled(Exception):
    """Nothing is left that could ever happen."""


class Stoppable:
    """What runs in its context may be stopped between any two steps, as a process by a signal."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._held_back: list[_Step] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_stopped = False
        steps, self._held_back = self._held_back, []
        for step in steps:
            loop.call_soon(step, context=step.context)

    def soon(self, callback: Callable[..., object]) -> None:
        """Run in this process, when it can."""
        asyncio.get_running_loop().call_soon(callback, context=self.context.copy())

    def hold_back(self, step: "_Step") -> None:
        self._held_back.append(step)


class _Step:
    """A callback of a process; a timer that is cancelled while it is held back never rings."""

    __slots__ = ("args", "callback", "context", "handle", "process")

    def __init__(
        self, process: Stoppable, callback: Callable[..., object], args: Any, context: Context
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        if self.handle is not None and self.handle.cancelled():
            return
        if self.process.is_stopped:
            self.process.hold_back(self)
        else:
            self.callback(*self.args)


class NumberedTask(asyncio.Task[Any]):
    """In sets by the order of its beginning: by its address, each time would be another world."""

    def __init__(self, number: int, coro: Any, **more: Any) -> None:
        self._number = number
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """The base loop asks its selector to wait: this one is its own, and waits by moving time."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._selector = self
        self._numbers = count()
        self.set_task_factory(self._numbered)

    def _numbered(self, _: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> "NumberedTask":
        return NumberedTask(next(self._numbers), coro, loop=self, **more)

    def time(self) -> float:
        return self._moment

    def select(self, seconds: float | None) -> list[Any]:
        if seconds is None:
            raise Stalled
        self._moment += seconds
        return []

    def _process_events(self, _: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody else could wake it."""

    def call_soon(  # type: ignore[override]  # the library counts the arguments' types
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        within = copy_context() if context is None else context
        process = within.get(PROCESS)
        if process is None or isinstance(callback, _Step):
            return super().call_soon(callback, *args, context=within)
        step = _Step(process, callback, args, within)
        step.handle = super().call_soon(step, context=within)
        return step.handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        within = copy_context() if context is None else context
        process = within.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=within)
        step = _Step(process, callback, args, within)
        timer = super().call_at(when, step, context=within)
        step.handle = timer
        return timer


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
