"""Tasks that record their start times, independent of the executor."""

import asyncio
import os
import time
from array import array
from pathlib import Path
from typing import Any, Final

from harebell.executor.tasks import TaskContext

FLUSH: Final = 0.1  # seconds between a start and the write to disk
FOLDER: Final = "BENCHMARK_STARTS"  # the variable with the folder of the starts
CONCURRENCY_FOLDER: Final = "BENCHMARK_CONCURRENCY"  # the variable with the folder of the maxima
HOLD_TIME: Final = 0.02  # seconds of a run of `hold`

_starts = array("d")  # due, started, due, started: seconds since 1970
_running = _max_running = 0  # runs of `hold`


async def start(_: dict[str, Any], context: TaskContext) -> None:
    now = time.time()
    if not _starts:
        asyncio.get_running_loop().call_later(FLUSH, _flush)
    _starts.extend((context.scheduled_for.timestamp(), now))


async def fail_once(args: dict[str, Any], context: TaskContext) -> None:
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    await start(args, context)


async def hold(args: dict[str, Any], context: TaskContext) -> None:
    global _running, _max_running  # noqa: PLW0603  # the counters belong to this process
    await start(args, context)
    _running += 1
    if _running > _max_running:
        _max_running = _running
        (Path(os.environ[CONCURRENCY_FOLDER]) / str(os.getpid())).write_text(str(_max_running))
    await asyncio.sleep(HOLD_TIME)
    _running -= 1


def _flush() -> None:
    with (Path(os.environ[FOLDER]) / str(os.getpid())).open("ab") as file:
        _starts.tofile(file)
    del _starts[:]
