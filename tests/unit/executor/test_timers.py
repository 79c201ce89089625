"""An alarm wakes whoever set it, once, however often it was set."""

import asyncio
import os
import time
from typing import Final

import pytest

from harebell.executor.model.start_queue import GRAIN
from harebell.executor.running.timers import LoopTimer, TimerFactory, best_timer, loop_timer

SOON: Final = 0.01  # seconds
LATER: Final = 0.05
NEVER: Final = 600.0
PATIENCE: Final = 10.0


class Bell:
    def __init__(self) -> None:
        self.rung = 0
        self._rings = asyncio.Event()

    def ring(self) -> None:
        self.rung += 1
        self._rings.set()

    async def heard(self) -> None:
        await asyncio.wait_for(self._rings.wait(), PATIENCE)
        self._rings.clear()


@pytest.fixture(params=[loop_timer, best_timer])
def alarms(request: pytest.FixtureRequest) -> TimerFactory:
    made: TimerFactory = request.param
    return made


@pytest.mark.requirement("S02")
async def test_it_rings_once_when_its_time_has_passed_each_time_it_is_set(
    alarms: TimerFactory,
) -> None:
    bell = Bell()
    times = (SOON, 0, LATER, 1e-9)
    with alarms(bell.ring) as alarm:
        for seconds in times:
            began = time.monotonic()
            alarm.set(seconds)
            await bell.heard()
            assert time.monotonic() - began >= seconds - GRAIN
        await asyncio.sleep(SOON)

    assert bell.rung == len(times)


async def test_to_set_or_to_clear_it_is_to_forget_what_it_was_set_to(alarms: TimerFactory) -> None:
    bell = Bell()
    with alarms(bell.ring) as alarm:
        alarm.set(SOON)
        alarm.set(NEVER)
        await asyncio.sleep(LATER)
        alarm.set(SOON)
        alarm.clear()
        await asyncio.sleep(LATER)
        alarm.set(SOON)

    await asyncio.sleep(LATER)
    assert bell.rung == 0


async def test_set_anew_just_when_it_has_ended_it_does_not_ring_for_what_it_was(
    alarms: TimerFactory,
) -> None:
    bell = Bell()
    with alarms(bell.ring) as alarm:
        alarm.set(GRAIN)
        time.sleep(SOON)  # noqa: ASYNC251  # so that the loop finds both at once
        asyncio.get_running_loop().call_soon(alarm.set, NEVER)
        await asyncio.sleep(LATER)

    assert bell.rung == 0


async def test_where_python_knows_no_timers_of_the_system_those_of_the_loop_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "timerfd_create", raising=False)
    with best_timer(Bell().ring) as alarm:
        assert isinstance(alarm, LoopTimer)
