"""The process of a service: settings, logs, signals, the event loop and the order of the stop."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeVar

import structlog
import uvloop

from harebell.bootstrap.supervisor import STOPPING, SUPERVISOR, Supervisor
from harebell.contract.errors import HarebellError, InvalidInput
from harebell.contract.message import build_models
from harebell.messaging import run_log
from harebell.runtime import failpoint, log_config
from harebell.runtime.otel_sdk import traced_process
from harebell.runtime.settings import ServiceSettings
from harebell.runtime.tzdata import use_newest_tzdata

USAGE_EXIT_CODE: Final = 2

# A service creates many tickets without reference cycles. Fewer collections save 25 % of the CPU.
GC_THRESHOLDS: Final = (50_000, 20, 100)

S = TypeVar("S", bound=ServiceSettings)
T = TypeVar("T")
log = structlog.get_logger()


def run_service(
    settings_class: type[S],
    role: str,
    serve: Callable[[S, asyncio.Event], Coroutine[Any, Any, None]],
    *,
    environ: Mapping[str, str],
) -> None:
    """Run a service until SIGTERM or SIGINT. Exit with 2 for bad settings, with 1 for a failure."""
    use_newest_tzdata(environ)
    with ExitStack() as stack:
        try:
            settings = settings_class.load(environ)
            armed = failpoint.Failpoint.parse(settings.failpoint) if settings.failpoint else None
            traced = traced_process(role, settings.instance_id, enabled=settings.otel)
            stack.enter_context(traced)
        except InvalidInput as error:
            sys.stderr.write(f"{error.field}: {error.reason}\n")
            sys.exit(USAGE_EXIT_CODE)
        failpoint.arm(armed)
        SUPERVISOR.set(Supervisor.of(environ))
        _run(settings, role, serve)


def _run(
    settings: S, role: str, serve: Callable[[S, asyncio.Event], Coroutine[Any, Any, None]]
) -> None:
    log_config.configure_logging(settings, role)
    run_log.use(settings.run_log)
    build_models()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            loop.set_task_factory(create_eager_task)
        stop = asyncio.Event()
        supervisor = SUPERVISOR.get()

        def begin_stop() -> None:
            supervisor.report(STOPPING)
            stop.set()

        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, begin_stop)
        alive = asyncio.create_task(supervisor.report_alive())
        try:
            await serve(settings, stop)
        finally:
            alive.cancel()

    try:
        uvloop.run(main())
    except HarebellError as error:
        log.error("service failed", error=error.code, reason=error.reason)  # noqa: TRY400  # complete
        sys.exit(1)


def create_eager_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T],
    *,
    eager_start: bool | None = None,
    **kwargs: Any,  # noqa: ANN401  # defined by the event loop
) -> asyncio.Task[T]:
    """Create an eager task. Some versions of uvloop cannot call `asyncio.eager_task_factory`."""
    eager = True if eager_start is None else eager_start
    return asyncio.Task(coro, loop=loop, eager_start=eager, **kwargs)


async def run_until(
    stop: asyncio.Event,
    *,
    consuming: Sequence[Coroutine[Any, Any, None]],
    background: Sequence[Coroutine[Any, Any, None]],
) -> None:
    """Run consumers and background loops until `stop`, the end of a consumer, or a failure.

    Consumers end first; then the background loops are cancelled. If a loop fails, the service ends
    and its supervisor starts it again. If `stop` is set already, nothing starts.
    """
    if stop.is_set():
        for coroutine in (*consuming, *background):
            coroutine.close()
        return
    consumers = [asyncio.create_task(coroutine) for coroutine in consuming]
    loops = [asyncio.create_task(coroutine) for coroutine in background]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *consumers, *loops], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.gather(*consumers)
    finally:
        for task in (stopping, *loops, *consumers):
            task.cancel()
        results = await asyncio.gather(*loops, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
