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

_starts = array("d")  # due, started, due, started: seconds since 1970


async def start(_: dict[str, Any], context: TaskContext) -> None:
    now = time.time()
    if not _starts:
        asyncio.get_running_loop().call_later(FLUSH, _flush)
    _starts.extend((context.scheduled_for.timestamp(), now))


async def fail_once(args: dict[str, Any], context: TaskContext) -> None:
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    await start(args, context)


def _flush() -> None:
    with (Path(os.environ[FOLDER]) / str(os.getpid())).open("ab") as file:
        _starts.tofile(file)
    del _starts[:]
