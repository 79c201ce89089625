"""The AMQP target: one confirmed and mandatory message to an exchange of another service.

RabbitMQ closes the channel after a publish to a missing or forbidden exchange. All unconfirmed
messages of that channel are lost, and often those of the whole connection. The first message of a
route therefore uses a probe connection, which carries no other message. Later messages share one
connection until one of them fails.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias, cast

from aio_pika import DeliveryMode, Message
from pamqp.common import FieldTable

from harebell.client.connection import Connection
from harebell.contract.amqp_names import APP_ID
from harebell.contract.errors import (
    BrokerUnavailable,
    HarebellError,
    NotAllowed,
    Rejected,
    Unroutable,
)
from harebell.contract.target import AmqpMessage
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import AttemptContext, Success, TargetOutcome, excerpt

PROBE_CONNECTIONS: Final = 4
MAX_PROBE_SECONDS: Final = 5.0  # for which one message may occupy a probe connection
MAX_VERIFIED_ROUTES: Final = 10_000  # the oldest route is dropped first

AmqpRoute: TypeAlias = tuple[str, str]  # exchange and routing key; permissions depend on both


class PublishFunction(Protocol):
    """A function that returns after the confirm of RabbitMQ, such as `Connection.publish`."""

    async def __call__(
        self,
        exchange: str,
        routing_key: str,
        message: Message,
        *,
        timeout: float,  # noqa: ASYNC109  # the parameter of `Connection.publish`
    ) -> None: ...


class AmqpTargets:
    """The connections for AMQP targets: `shared`, and one for each of `probes`."""

    def __init__(self, shared: PublishFunction, probes: Iterable[PublishFunction]) -> None:
        self._shared = shared
        self._probes: asyncio.LifoQueue[PublishFunction] = asyncio.LifoQueue()
        for probe in probes:
            self._probes.put_nowait(probe)
        self._verified: dict[AmqpRoute, None] = {}

    async def call(
        self, message: AmqpMessage, attempt: AttemptContext, seconds: float
    ) -> TargetOutcome:
        """Publish the message within `seconds`.

        A missing queue or exchange is retryable, because its service may declare it later.
        """
        route = (message.exchange, message.routing_key)
        publish = self._publish_shared if route in self._verified else self._publish_probe
        try:
            await publish(route, _envelope(message, attempt), seconds)
        except HarebellError as error:
            self._verified.pop(route, None)
            return Failure(
                error.code, excerpt(error.reason), retryable=not isinstance(error, Rejected)
            )
        self._verified[route] = None
        if len(self._verified) > MAX_VERIFIED_ROUTES:
            del self._verified[next(iter(self._verified))]
        return Success()

    async def _publish_probe(self, route: AmqpRoute, message: Message, seconds: float) -> None:
        probe = await self._probes.get()
        try:
            await probe(*route, message, timeout=min(seconds, MAX_PROBE_SECONDS))
        finally:
            self._probes.put_nowait(probe)

    async def _publish_shared(self, route: AmqpRoute, message: Message, seconds: float) -> None:
        """Publish on the shared connection. Report a closed channel as `BrokerUnavailable`.

        Another message may have caused that close, so its reason does not count for this message.
        """
        try:
            await self._shared(*route, message, timeout=seconds)
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
    connections = [
        Connection(url, name=name, properties=properties) for _ in range(1 + PROBE_CONNECTIONS)
    ]
    shared, *probes = (connection.publish for connection in connections)
    try:
        yield AmqpTargets(shared, probes)
    finally:
        for connection in connections:
            await connection.close()


def _envelope(message: AmqpMessage, attempt: AttemptContext) -> Message:
    body = message.body() or b""
    signature = {} if attempt.signer is None else attempt.signer.headers(body)
    return Message(
        body,
        headers={
            **cast("FieldTable", message.headers),  # resolved secrets
            **attempt.headers(),
            **signature,
        },
        content_type=message.content_type(),
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=attempt.ticket.run_id,
        app_id=APP_ID,
    )
