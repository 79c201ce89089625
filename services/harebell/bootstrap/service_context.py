"""How a service lives: settings, parts opened in order, loops, a stop that loses nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import asyncpg
import structlog
from aio_pika.abc import AbstractConnection

from harebell.bootstrap.health import Health, serve_health
from harebell.client.connection import HEARTBEAT, Connection, close, connect
from harebell.contract import __version__
from harebell.contract.errors import Transient
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.publisher import Publisher
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.declarations import Topology
from harebell.messaging.topology_keeper import TopologyKeeper
from harebell.runtime.clock import REFRESH, Clock
from harebell.runtime.retries import retry_until_available
from harebell.runtime.settings import PoolBounds, ServiceSettings
from harebell.storage.engine import database_time, open_pool

REOPEN: Final = 2.0  # seconds between looks at an idle link
STALE: Final = 3 * REFRESH  # seconds since the database last told the time
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
