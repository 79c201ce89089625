"""TODO: describe this module."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import uvloop

from harebell.bootstrap.service_context import T, log
from harebell.contract.errors import HarebellError, InvalidInput
from harebell.runtime import failpoint, log_config
from harebell.runtime.settings import ServiceSettings

USAGE_EXIT_CODE: Final = 2

# Tickets are many and hold no cycles: collecting less often saves a quarter of the CPU.
GC_THRESHOLDS: Final = (50_000, 20, 100)

S = TypeVar("S", bound=ServiceSettings)


async def run_until(
    stop: asyncio.Event,
    *,
    consuming: Sequence[Coroutine[Any, Any, None]],
    background: Sequence[Coroutine[Any, Any, None]],
) -> None:
    """Consumers end by themselves after `stop`; then the background is cancelled.

    A loop that fails takes the service down: its supervisor starts it afresh. Nothing begins in a
    service that was stopped while it waited for its servers: not even its clock is set.
    """
    if stop.is_set():
        for work in (*consuming, *background):
            work.close()
        return
    foreground = [asyncio.create_task(work) for work in consuming]
    loops = [asyncio.create_task(work) for work in background]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *foreground, *loops], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.gather(*foreground)
    finally:
        for task in (stopping, *loops, *foreground):
            task.cancel()
        ended = await asyncio.gather(*loops, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result


def _eagerly(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T],
    *,
    eager_start: bool | None = None,
    **kwargs: Any,  # noqa: ANN401  # the loop's own
) -> asyncio.Task[T]:
    """As `asyncio.eager_task_factory`, which some releases do not let uvloop call."""
    eager = True if eager_start is None else eager_start
    return asyncio.Task(coro, loop=loop, eager_start=eager, **kwargs)


def run_service(
    settings_class: type[S],
    role: str,
    serve: Callable[[S, asyncio.Event], Coroutine[Any, Any, None]],
    environ: Mapping[str, str],
) -> None:
    """The whole of a `__main__`."""
    try:
        settings = settings_class.load(environ)
        armed = failpoint.Failpoint.parse(settings.failpoint) if settings.failpoint else None
    except InvalidInput as error:
        sys.stderr.write(f"{error.field}: {error.reason}\n")
        sys.exit(USAGE_EXIT_CODE)
    log_config.configure_logging(settings, role)
    failpoint.arm(armed)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            loop.set_task_factory(_eagerly)
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, stop.set)
        await serve(settings, stop)

    try:
        uvloop.run(main())
    except HarebellError as error:
        log.error("ended", error=error.code, reason=error.reason)  # said in full
        sys.exit(1)
