"""The collaborators of every service, opened in order and closed at the stop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import asyncpg
import structlog
from aio_pika.abc import AbstractConnection

from harebell.bootstrap.health import Health, serve_health
from harebell.bootstrap.links import LinkFaults, show_links
from harebell.bootstrap.supervisor import READY, SUPERVISOR
from harebell.connection.amqp import HEARTBEAT, Connection, close, connect, login_of
from harebell.contract import __version__
from harebell.contract.errors import Transient
from harebell.domain.sender import SenderPolicy, is_service
from harebell.domain.tenant_policy import ANY, TenantPolicies
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.consumer import OptionalQueues
from harebell.messaging.foreign_messages import SentMessage
from harebell.messaging.publisher import Publisher
from harebell.messaging.replies import Replies, ReplySender
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.declarations import Queue, Topology
from harebell.messaging.topology_keeper import TopologyKeeper
from harebell.runtime.clock import REFRESH_INTERVAL, Clock
from harebell.runtime.metrics import TZDATA_OUTDATED
from harebell.runtime.policy_file import PolicyKeeper
from harebell.runtime.retries import retry_until_available
from harebell.runtime.settings import PoolBounds, ServiceSettings
from harebell.runtime.tzdata import fault_of, packaged_version, tzdata_version
from harebell.storage.engine import database_time, open_pool

RECONNECT_INTERVAL: Final = 2.0  # seconds between two checks of the publishing connection
MAX_CLOCK_AGE: Final = 3 * REFRESH_INTERVAL  # seconds; an older reading fails the readiness check
REPLY_DRAIN_TIMEOUT: Final = 2.0  # seconds for the last replies when a service stops

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class ServiceContext:
    """The collaborators that every service needs."""

    role: str
    login: str  # of this service at the broker
    settings: ServiceSettings
    stop: asyncio.Event
    health: Health
    pool: asyncpg.Pool
    clock: Clock
    topology_keeper: TopologyKeeper
    connection: Connection
    publisher: Publisher
    replies: ReplySender
    acknowledger: Acknowledger
    policies: PolicyKeeper
    faults: LinkFaults = field(default_factory=LinkFaults)

    def is_from_service(self, message: SentMessage) -> bool:
        """Return whether a service has published the message, as far as the mode can tell."""
        return is_service(message.user_id, self.settings.identity_mode, self.login)

    @property
    def tenants_with_queues(self) -> frozenset[str]:
        """The tenants of the settings and of the policies in force, whose queues may exist.

        AMQP has no list of queues. Only a broker with the definitions file has such queues.
        """
        if self.settings.topology_mode == "declare":
            return frozenset()
        return self.settings.tenants | self.policies.current.tenants.keys()

    @property
    def sender_policy(self) -> SenderPolicy:
        """The rules about senders, which use the logins of the policies in force."""
        return SenderPolicy(
            mode=self.settings.identity_mode,
            operators=self.settings.operators,
            logins_of=self._logins_of,
        )

    def _logins_of(self, tenant: str) -> frozenset[str]:
        """Return the logins of the policies in force at each call, because files are reloaded."""
        return self.policies.current.logins(tenant)

    async def connect(self, heartbeat: int = HEARTBEAT) -> AbstractConnection:
        """Open a connection for consumers and declare the topology.

        Raise `BrokerUnavailable` if RabbitMQ does not respond.
        """
        with self.faults.observe_broker():
            connection = await connect(
                self.settings.amqp_url.get_secret_value(),
                name=f"{self.settings.instance_id} consumes",
                properties=connection_properties(self.role, self.settings.instance_id),
                heartbeat=heartbeat,
            )
        try:
            await self.topology_keeper.ensure(connection)
        except BaseException:  # the caller never receives the connection and cannot close it
            await close(connection)
            raise
        return connection

    async def run(self) -> None:
        """Keep clock, connection, topology and policies current until the task is cancelled."""
        await asyncio.gather(
            self.clock.run(),
            self._reconnect(),
            self.topology_keeper.run(self.connect),
            self.policies.run(),
        )

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(RECONNECT_INTERVAL)
            if not self.connection.is_open:
                with suppress(Transient), self.faults.observe_broker():
                    await self.connection.open()


def service_login(settings: ServiceSettings, role: str) -> str:
    """Return the login of the service. A certificate names the user of the definitions file."""
    return login_of(settings.amqp_url.get_secret_value()) or f"harebell_{role}"


def connection_properties(role: str, name: str) -> dict[str, str]:
    """Return the client properties that the management UI shows for a connection."""
    return {
        "product": "Harebell",
        "version": __version__,
        "service": role,
        "instance": name,
        "host": socket.gethostname(),
    }


def _show_tzdata(health: Health, clock: Clock) -> None:
    """Let the readiness and a metric show old time zone data."""
    version, packaged = tzdata_version(), packaged_version()

    def fault() -> str | None:
        return fault_of(version, clock.now().date(), packaged=packaged)

    health.warn("time zone data", fault)
    TZDATA_OUTDATED.labels(version).set_function(lambda: float(fault() is not None))


@asynccontextmanager
async def open_service(
    settings: ServiceSettings,
    role: str,
    stop: asyncio.Event,
    *,
    topology: Topology = SYSTEM,
    hot: bool = True,
) -> AsyncIterator[ServiceContext]:
    """Wait for RabbitMQ and PostgreSQL, then yield the context.

    The health endpoints respond during the wait. Without `hot`, PostgreSQL plans each statement
    for its parameters. Raise `InvalidInput` for an invalid file of tenant policies.
    """
    policies = await open_policies(settings)
    health = Health()
    health.warn("tenant policies", lambda: policies.fault)
    faults = LinkFaults()
    show_links(health, settings, faults)
    connection = Connection(
        settings.amqp_url.get_secret_value(),
        name=f"{settings.instance_id} publishes",
        properties=connection_properties(role, settings.instance_id),
    )
    async with (
        serve_health(health, settings.http_host, settings.http_port),
        _open_database(settings, stop, faults, hot=hot) as pool,
    ):
        clock = Clock(lambda: database_time(pool))
        topology_keeper = TopologyKeeper(topology, declares=settings.topology_mode == "declare")
        login = service_login(settings, role)
        publisher = Publisher(connection, topology_keeper.on_unroutable, login=login)
        replies = Replies(partial(_connect_for_replies, settings, role))
        context = ServiceContext(
            role=role,
            login=login,
            settings=settings,
            stop=stop,
            health=health,
            pool=pool,
            clock=clock,
            topology_keeper=topology_keeper,
            connection=connection,
            publisher=publisher,
            replies=replies,
            acknowledger=Acknowledger(publisher, clock),
            policies=policies,
            faults=faults,
        )
        try:
            await retry_until_available(stop, clock.refresh)
            if not stop.is_set():  # or the clock may never have been read
                _show_tzdata(health, clock)
            first = await retry_until_available(stop, context.connect)
            if first is not None:
                await close(first)
            await retry_until_available(stop, connection.open)
            health.check("broker", lambda: connection.is_open)
            health.check("database", lambda: clock.age() < MAX_CLOCK_AGE)
            log.info("service started", version=__version__)
            SUPERVISOR.get().report(READY)
            yield context
            log.info("service stopped")
        finally:
            await replies.close(within=REPLY_DRAIN_TIMEOUT)
            await connection.close()


def queues_of_tenants(
    context: ServiceContext, make_queue: Callable[[str], Queue], *, prefetch: int
) -> OptionalQueues:
    """Return the queues of one kind of all tenants with queues of their own."""
    return OptionalQueues(
        names=lambda: [make_queue(each).name for each in context.tenants_with_queues],
        prefetch=prefetch,
    )


async def _connect_for_replies(
    settings: ServiceSettings, role: str, receiver: str
) -> AbstractConnection:
    return await connect(
        settings.amqp_url.get_secret_value(),
        name=f"{settings.instance_id} replies to {receiver or 'anyone'}",
        properties=connection_properties(role, settings.instance_id),
    )


async def open_policies(settings: ServiceSettings) -> PolicyKeeper:
    """Return the tenant policies of the settings. Raise `InvalidInput` for an invalid file.

    Without a file, nothing is restricted where the services declare the topology. In production,
    tenants then publish only to their own exchanges (decision 36).
    """
    exchanges = (ANY,) if settings.topology_mode == "declare" else ()
    without_file = TenantPolicies.unrestricted(
        exchanges=exchanges, delayed=settings.delayed_exchanges
    )
    return await PolicyKeeper.open(settings.tenants_file, without_file)


@asynccontextmanager
async def _open_database(
    settings: ServiceSettings, stop: asyncio.Event, faults: LinkFaults, *, hot: bool
) -> AsyncIterator[asyncpg.Pool]:
    """Wait until the minimum number of connections is open."""

    async def enter(bounds: PoolBounds) -> asyncpg.Pool:
        url = settings.database_url.get_secret_value()
        return await opened.enter_async_context(
            open_pool(
                url,
                name=settings.instance_id,
                hot=hot,
                bounds=bounds,
                on_connect=faults.set_database,
            )
        )

    async with AsyncExitStack() as opened:
        pool = await retry_until_available(stop, lambda: enter(settings.pool_bounds))
        # After a stop during the wait, the service needs a pool without connections.
        yield pool or await enter(PoolBounds())
