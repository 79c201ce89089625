"""A world from its seed to its end, and nothing of it in the next."""

import asyncio
import random
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NoReturn
from unittest.mock import patch

import asyncpg
import structlog
from tests.simulation.loop import PROCESS, Stalled, virtual_time
from tests.simulation.process import Process
from tests.simulation.scenario import World

from harebell.dispatcher import service as dispatching
from harebell.executor import completer
from harebell.runtime import clock

# What looks for what is rarely there; at its own pace it would take most of all steps.
BEAT: Final = 0.2  # seconds between a dispatcher's looks at what is due
EVENT_INTERVAL: Final = 0.5  # seconds between two publications of events by a completer
READINGS: Final = 2  # of the database's clock at a refresh
ROUNDS: Final = 20  # at most, of cancelling what is left at the end

_worlds: list[World] = []  # the one of now: logs are told to it


@dataclass(frozen=True)
class Report:
    seed: int
    violation: str | None
    trace: list[str]
    became: Counter[str]  # runs, what
    happened: Counter[str]
    cpu: float  # seconds


def simulate(seed: int, *, verbose: bool = False) -> Report:
    """The same seed, the same world, step by step (given the same PYTHONHASHSEED)."""
    began = time.process_time()
    with virtual_time() as loop, _chance(seed):
        world = World(seed, loop, verbose)
        _worlds[:] = [world]
        try:
            loop.run_until_complete(world.live())
        except Stalled:
            world.fail("nothing goes on")
        _end(world)
    _worlds.clear()
    cpu = time.process_time() - began
    return Report(seed, world.broken, list(world.steps), world.became, world.happened, cpu)


@contextmanager
def _chance(seed: int) -> Generator[None]:
    """Jitter of pauses and of backoffs, and the names of holders."""
    random.seed(seed)
    tokens = Random(seed)  # noqa: S311  # chance that can be repeated
    with (
        patch.object(secrets, "token_hex", lambda length: tokens.randbytes(length).hex()),
        patch.object(completer, "EVENT_INTERVAL", EVENT_INTERVAL),
        patch.object(dispatching, "RELEASE_INTERVAL", BEAT),
        patch.object(clock, "SAMPLES_PER_REFRESH", READINGS),
    ):
        yield


def _end(world: World) -> None:
    """No task is left for the collector, which would end it in another world."""
    world.crew.end()
    for _ in range(ROUNDS):
        left = asyncio.all_tasks(world.loop)
        if not left:
            return
        for task in left:
            task.cancel()
        world.loop.run_until_complete(asyncio.sleep(1))
    raise AssertionError(f"tasks that never end: {left}")


def _told(_: Any, method: str, event: MutableMapping[str, Any]) -> NoReturn:
    """Logs become steps; what a service did not foresee is a violation."""
    world, process, error = _worlds[0], PROCESS.get(), sys.exception()
    name = process.name if isinstance(process, Process) else "nobody"
    facts = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
    world.trace(f"{name}: {event['event']} {facts}"[:200])
    is_over = isinstance(process, Process) and process.is_over
    # two tickers have applied one command: the second is told so, tries again, and finds it
    is_foreseen = isinstance(error, asyncpg.UniqueViolationError)
    if (method == "exception" or event.get("exc_info")) and not is_over and not is_foreseen:
        last = "".join(traceback.format_exception(error)[-3:])
        world.fail(f"{event['event']}: {last}")
    raise structlog.DropEvent


structlog.configure(processors=[_told])
