"""The AMQP target: one confirmed and mandatory message to an exchange of another service.

Each tenant has two connections, so a message that many queues receive, or a channel that RabbitMQ
closes, delays the messages of its own tenant alone.

RabbitMQ closes the channel after a publish to a missing or forbidden exchange. All unconfirmed
messages of that channel are lost, and often those of the whole connection. The first message of a
route therefore uses the probe connection, which carries one message at a time. Later messages use
the shared connection until one of them fails.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, cast

from aio_pika import DeliveryMode, Message
from pamqp.common import FieldTable

from harebell.connection.amqp import Connection
from harebell.contract.amqp_names import APP_ID
from harebell.contract.errors import (
    BrokerUnavailable,
    HarebellError,
    InvalidInput,
    NotAllowed,
    Rejected,
    Unroutable,
)
from harebell.contract.target import AmqpMessage
from harebell.contract.target_headers import MAX_HEADERS_SIZE, RunRef, TypedHeader, amqp_size
from harebell.contract.types import MILLISECOND
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import AttemptContext, Success, TargetOutcome, excerpt
from harebell.executor.targets.client_spans import start_send
from harebell.messaging import pamqp_patch

pamqp_patch.install()

MAX_IDLE: Final = 64  # tenants with connections that no attempt uses
MAX_PROBE_SECONDS: Final = 5.0  # for which one message may occupy the probe connection
MAX_VERIFIED_ROUTES: Final = 10_000  # the oldest route is dropped first
_HALF_MS: Final = 0.5
_MS_PER_SECOND: Final = 1_000

AmqpRoute: TypeAlias = tuple[str, str]  # exchange and routing key; permissions depend on both


class TargetConnection(Protocol):
    """A connection that opens at its first use, such as `Connection`."""

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        message: Message,
        *,
        timeout: float,  # noqa: ASYNC109  # the parameter of `Connection.publish`
    ) -> None:
        """Publish the message, and return after the confirm of RabbitMQ."""

    async def close(self) -> None:
        """Close the connection, if it is open."""


@dataclass(slots=True, kw_only=True)
class _Connections:
    """The connections of one tenant, and the number of attempts that use them."""

    shared: TargetConnection
    probe: TargetConnection
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_use: int = 0

    async def close(self) -> None:
        await self.shared.close()
        await self.probe.close()


class AmqpTargets:
    """The connections for AMQP targets. `open_connection` receives the name of the tenant."""

    def __init__(self, open_connection: Callable[[str], TargetConnection]) -> None:
        self._open_connection = open_connection
        # In the order of their last use. The slots bound those in use, and `MAX_IDLE` the others.
        self._tenants: OrderedDict[str, _Connections] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._verified: dict[AmqpRoute, None] = {}

    async def close(self) -> None:
        """Close the connections of all tenants."""
        for connections in self._tenants.values():
            self._close(connections)
        self._tenants.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def call(
        self, message: AmqpMessage, attempt: AttemptContext, seconds: float
    ) -> TargetOutcome:
        """Publish the message within `seconds`.

        A missing queue or exchange is retryable, because its service may declare it later.
        """
        route = (message.exchange, message.routing_key)
        publish = _publish_shared if route in self._verified else _publish_probe
        connections = self._connections_of(attempt.ticket.run_spec.tenant)
        span = start_send(message, attempt)
        if span is not None:
            attempt = attempt._replace(trace=span.context)
        connections.in_use += 1
        try:
            await publish(connections, route, _envelope(message, attempt), seconds=seconds)
        except HarebellError as error:
            if span is not None:
                span.fail(error.code)
            self._verified.pop(route, None)
            return Failure(
                error.code,
                excerpt(error.reason),
                retryable=not isinstance(error, Rejected),
                own=len(error.reason),
            )
        finally:
            connections.in_use -= 1
            if span is not None:
                span.end()
        self._verified[route] = None
        if len(self._verified) > MAX_VERIFIED_ROUTES:
            del self._verified[next(iter(self._verified))]
        return Success()

    def _connections_of(self, tenant: str) -> _Connections:
        """Return the connections of the tenant, and close those that were idle longest."""
        connections = self._tenants.get(tenant)
        if connections is None:
            connections = _Connections(
                shared=self._open_connection(tenant), probe=self._open_connection(tenant)
            )
            self._tenants[tenant] = connections
            idle = [name for name, each in self._tenants.items() if not each.in_use]
            for name in idle[: max(0, len(idle) - MAX_IDLE)]:
                self._close(self._tenants.pop(name))
        self._tenants.move_to_end(tenant)
        return connections

    def _close(self, connections: _Connections) -> None:
        task = asyncio.create_task(connections.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _publish_probe(
    connections: _Connections, route: AmqpRoute, message: Message, *, seconds: float
) -> None:
    async with connections.probing:
        timeout = min(seconds, MAX_PROBE_SECONDS)
        await connections.probe.publish(*route, message, timeout=timeout)


async def _publish_shared(
    connections: _Connections, route: AmqpRoute, message: Message, *, seconds: float
) -> None:
    """Publish on the shared connection. Report a closed channel as `BrokerUnavailable`.

    Another message may have caused that close, so its reason does not count for this message.
    """
    try:
        await connections.shared.publish(*route, message, timeout=seconds)
    except (NotAllowed, Unroutable) as error:
        if error.code == Unroutable.code:  # RabbitMQ returned this message
            raise
        reason = f"RabbitMQ did not confirm the message: {error.reason}"
        raise BrokerUnavailable(reason) from error


@asynccontextmanager
async def open_amqp(
    url: str, *, name: str, properties: Mapping[str, str]
) -> AsyncIterator[AmqpTargets]:
    """Yield the AMQP targets. Each connection opens at its first use."""
    targets = AmqpTargets(
        lambda tenant: Connection(url, name=f"{name} of {tenant}", properties=properties)
    )
    try:
        yield targets
    finally:
        await targets.close()


def _envelope(message: AmqpMessage, attempt: AttemptContext) -> Message:
    body = message.body() or b""
    signature = {} if attempt.signer is None else attempt.signer.headers(body)
    run_id = attempt.ticket.run_id
    correlation_id = message.correlation_id
    return Message(
        body,
        headers={
            **_own_headers(message, run_id),
            **attempt.headers(),
            **signature,
        },
        content_type=message.content_type(),
        content_encoding=message.content_encoding,
        delivery_mode=DeliveryMode.PERSISTENT,
        priority=message.priority,
        correlation_id=run_id if isinstance(correlation_id, RunRef) else correlation_id,
        reply_to=message.reply_to,
        expiration=_expiration(message),
        message_id=message.message_id or run_id,
        timestamp=message.timestamp,
        type=message.type,
        app_id=message.app_id or (None if message.is_bare else APP_ID),
    )


def _expiration(message: AmqpMessage) -> float | None:
    """Return the expiration in seconds, for aio-pika."""
    if message.expiration is None:
        return None
    # aio-pika truncates the product of a float, so half a millisecond keeps the last one.
    return (message.expiration // MILLISECOND + _HALF_MS) / _MS_PER_SECOND


def _own_headers(message: AmqpMessage, run_id: str) -> "FieldTable":
    """Return the headers of the user, with resolved secrets and the id of the run.

    Raise `InvalidInput` if the secrets make them too large for RabbitMQ, which would close the
    connection of all messages.
    """
    headers = {name: _header(value, run_id) for name, value in message.headers.items()}
    if (size := amqp_size(headers)) > MAX_HEADERS_SIZE:
        reason = f"The headers must have at most {MAX_HEADERS_SIZE} bytes with secrets, not {size}."
        raise InvalidInput(reason, field="target.amqp.headers", code="too_large")
    return cast("FieldTable", headers)


def _header(value: object, run_id: str) -> object:
    match value:
        case RunRef():
            return run_id
        case TypedHeader():
            return value.value
        case _:
            return value
