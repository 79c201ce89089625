"""Unit tests of both kinds of timers: a timer calls back once for its latest setting."""

import asyncio
import os
import time
from typing import Final

import pytest

from harebell.executor.model.start_queue import TIMER_RESOLUTION
from harebell.executor.running.timers import LoopTimer, TimerFactory, best_timer, loop_timer

SOON: Final = 0.01  # seconds
LATER: Final = 0.05
NEVER: Final = 600.0
TIMEOUT: Final = 10.0


class Callback:
    """A callback of a timer, which counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._called = asyncio.Event()

    def __call__(self) -> None:
        self.calls += 1
        self._called.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._called.wait(), TIMEOUT)
        self._called.clear()


@pytest.fixture(params=[loop_timer, best_timer])
def timers(request: pytest.FixtureRequest) -> TimerFactory:
    factory: TimerFactory = request.param
    return factory


@pytest.mark.requirement("S02")
async def test_timer_calls_back_once_after_each_setting(timers: TimerFactory) -> None:
    callback = Callback()
    settings = (SOON, 0, LATER, 1e-9)
    with timers(callback) as timer:
        for seconds in settings:
            set_at = time.monotonic()
            timer.set(seconds)
            await callback.wait()
            assert time.monotonic() - set_at >= seconds - TIMER_RESOLUTION
        await asyncio.sleep(SOON)

    assert callback.calls == len(settings)


async def test_timer_does_not_call_back_for_a_replaced_or_cleared_setting(
    timers: TimerFactory,
) -> None:
    callback = Callback()
    with timers(callback) as timer:
        timer.set(SOON)
        timer.set(NEVER)
        await asyncio.sleep(LATER)
        timer.set(SOON)
        timer.clear()
        await asyncio.sleep(LATER)
        timer.set(SOON)

    await asyncio.sleep(LATER)
    assert callback.calls == 0


async def test_timer_does_not_call_back_when_it_is_set_again_just_after_its_expiry(
    timers: TimerFactory,
) -> None:
    callback = Callback()
    with timers(callback) as timer:
        timer.set(TIMER_RESOLUTION)
        time.sleep(SOON)  # noqa: ASYNC251  # so that the loop finds both events in one iteration
        asyncio.get_running_loop().call_soon(timer.set, NEVER)
        await asyncio.sleep(LATER)

    assert callback.calls == 0


async def test_best_timer_is_a_loop_timer_when_python_has_no_timerfd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "timerfd_create", raising=False)
    with best_timer(Callback()) as timer:
        assert isinstance(timer, LoopTimer)
