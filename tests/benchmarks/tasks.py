"""Tasks that write down when they were started: the executor's own word is not asked."""

import asyncio
import os
import time
from array import array
from pathlib import Path
from typing import Any, Final

from harebell.executor.tasks import TaskContext

FLUSH: Final = 0.1  # seconds after a start until it is on disk
FOLDER: Final = "BENCHMARK_STARTS"  # the variable that names it
MOST: Final = "BENCHMARK_MOST"  # of the folder where each process says how many ran at once
HELD: Final = 0.02  # seconds that a run of `hold` takes at least

_starts = array("d")  # due, started, due, started: seconds since 1970
_running = _most = 0  # runs of `hold`


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
    global _running, _most  # noqa: PLW0603  # of this process, which is what is counted
    await start(args, context)
    _running += 1
    if _running > _most:
        _most = _running
        (Path(os.environ[MOST]) / str(os.getpid())).write_text(str(_most))
    await asyncio.sleep(HELD)
    _running -= 1


def _flush() -> None:
    with (Path(os.environ[FOLDER]) / str(os.getpid())).open("ab") as file:
        _starts.tofile(file)
    del _starts[:]
