"""How a service lives: settings, parts opened in order, loops, a stop that loses nothing."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import asyncpg
import structlog
import uvloop
from aio_pika.abc import AbstractConnection

from harebell.client.connection import HEARTBEAT, Connection, close, connect
from harebell.contract import __version__
from harebell.contract.errors import HarebellError, InvalidInput, Transient
from harebell.kernel import failpoint, logs
from harebell.kernel.amqp.consume import Acknowledger, backoff_delay
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.upkeep import TopologyKeeper
from harebell.kernel.bus import SYSTEM
from harebell.kernel.clock import REFRESH, Clock
from harebell.kernel.db.engine import database_time, open_pool
from harebell.kernel.health import Health, serve_health
from harebell.kernel.settings import PoolBounds, ServiceSettings
from harebell.kernel.topology import Topology

USAGE_EXIT_CODE: Final = 2
REOPEN: Final = 2.0  # seconds between looks at an idle link
STALE: Final = 3 * REFRESH  # seconds since the database last told the time

# Tickets are many and hold no cycles: collecting less often saves a quarter of the CPU.
GC_THRESHOLDS: Final = (50_000, 20, 100)

S = TypeVar("S", bound=ServiceSettings)
T = TypeVar("T")
log = structlog.get_logger()


@dataclass(slots=True)
class ServiceContext:
    """What every service is made of."""

    role: str
    settings: ServiceSettings
    upkeep: TopologyKeeper
    stop: asyncio.Event
    health: Health
    pool: asyncpg.Pool
    clock: Clock
    link: Connection
    publisher: Publisher
    settler: Acknowledger

    async def connect(self, heartbeat: int = HEARTBEAT) -> AbstractConnection:
        """A connection to consume on, the topology declared; raises `BrokerUnavailable`."""
        connection = await connect(
            self.settings.amqp_url.get_secret_value(),
            name=f"{self.settings.instance_id} consumes",
            properties=connection_properties(self.role, self.settings.instance_id),
            heartbeat=heartbeat,
        )
        try:
            await self.upkeep.ensure(connection)
        except BaseException:  # whoever asked for it never gets it, so nobody else closes it
            await close(connection)
            raise
        return connection

    async def keep(self) -> None:
        """Clock, link and topology, so that readiness tells the truth. Until cancelled."""
        await asyncio.gather(self.clock.run(), self._keep_link(), self.upkeep.keep(self.connect))

    async def _keep_link(self) -> None:
        while True:
            await asyncio.sleep(REOPEN)
            with suppress(Transient):
                await self.link.open()


def connection_properties(role: str, name: str) -> dict[str, str]:
    """What the management UI shows of a connection."""
    return {
        "product": "Harebell",
        "version": __version__,
        "service": role,
        "instance": name,
        "host": socket.gethostname(),
    }


@asynccontextmanager
async def open_service(
    settings: ServiceSettings, role: str, stop: asyncio.Event, *, topology: Topology = SYSTEM
) -> AsyncIterator[ServiceContext]:
    """Waits, answering health checks, until the broker and the database are there."""
    health = Health()
    link = Connection(
        settings.amqp_url.get_secret_value(),
        name=f"{settings.instance_id} publishes",
        properties=connection_properties(role, settings.instance_id),
    )
    async with (
        serve_health(health, settings.http_host, settings.http_port),
        _pool(settings, stop) as pool,
    ):
        clock = Clock(lambda: database_time(pool))
        upkeep = TopologyKeeper(topology, declares=settings.topology_mode == "declare")
        publisher = Publisher(link, upkeep.on_unroutable)
        parts = ServiceContext(
            role, settings, upkeep, stop, health, pool, clock, link, publisher,
            Acknowledger(publisher, clock),
        )  # fmt: skip
        try:
            await retry_until_available(stop, clock.refresh)
            connection = await retry_until_available(stop, parts.connect)
            if connection is not None:
                await close(connection)
            await retry_until_available(stop, link.open)
            health.check("broker", lambda: link.is_open)
            health.check("database", lambda: clock.age() < STALE)
            log.info("started", version=__version__)
            yield parts
            log.info("stopped")
        finally:
            await link.close()


@asynccontextmanager
async def _pool(settings: ServiceSettings, stop: asyncio.Event) -> AsyncIterator[asyncpg.Pool]:
    """Waits for as many connections as are kept open."""

    async def enter(bounds: PoolBounds) -> asyncpg.Pool:
        url = settings.database_url.get_secret_value()
        return await opened.enter_async_context(
            open_pool(url, name=settings.instance_id, bounds=bounds)
        )

    async with AsyncExitStack() as opened:
        pool = await retry_until_available(stop, lambda: enter(settings.pool_bounds))
        yield pool or await enter(PoolBounds())  # stopped meanwhile, and needs none


async def retry_until_available(stop: asyncio.Event, call: Callable[[], Awaitable[T]]) -> T | None:
    """Until it succeeds, or None when stopped first."""
    tries = 0
    while not stop.is_set():
        try:
            return await call()
        except Transient as error:
            log.warning("waiting", error=error.code, reason=error.reason)
            await asyncio.sleep(backoff_delay(tries))
            tries += 1
    return None


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
    logs.configure_logging(settings, role)
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
        log.error("ended", error=error.code, reason=error.reason)  # noqa: TRY400  # said in full
        sys.exit(1)
