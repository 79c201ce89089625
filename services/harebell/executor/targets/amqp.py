"""The amqp target: a message to an exchange of another service, confirmed and mandatory.

The broker answers a missing or forbidden exchange by closing the channel, and whatever else is on
its way there is lost with it, often with the whole connection. So a route is first tried alone, on
a link that carries nothing else; only one that has worked shares a link, until it fails.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

from aio_pika import DeliveryMode, Message

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
from harebell.executor.targets.attempt import AttemptContext, Outcome, Success, excerpt

SCOUTS: Final = 4  # links for messages that travel alone
ALONE_AT_MOST: Final = 5.0  # seconds that one of them may hold its link
MAX_KNOWN: Final = 10_000  # routes that have worked; the oldest is forgotten first

Route: TypeAlias = tuple[str, str]  # exchange, and routing key: permissions may depend on both


class Publish(Protocol):
    """Returns once the broker has confirmed; else raises, as `Link.publish` does."""

    async def __call__(
        self,
        exchange: str,
        routing_key: str,
        message: Message,
        *,
        timeout: float,  # noqa: ASYNC109  # the link's name for it
    ) -> None: ...


class AmqpTargets:
    """`shared` and each of `scouts` have a link of their own."""

    def __init__(self, shared: Publish, scouts: Iterable[Publish]) -> None:
        self._shared = shared
        self._scouts: asyncio.LifoQueue[Publish] = asyncio.LifoQueue()
        for scout in scouts:
            self._scouts.put_nowait(scout)
        self._known: dict[Route, None] = {}

    async def call(self, message: AmqpMessage, attempt: AttemptContext, seconds: float) -> Outcome:
        """A missing queue or exchange is retried: its service may be on its way up."""
        route = (message.exchange, message.routing_key)
        publish = self._together if route in self._known else self._alone
        try:
            await publish(route, _envelope(message, attempt), seconds)
        except HarebellError as error:
            self._known.pop(route, None)
            return Failure(error.code, excerpt(error.reason), not isinstance(error, Rejected))
        self._known[route] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return Success()

    async def _alone(self, route: Route, message: Message, seconds: float) -> None:
        scout = await self._scouts.get()
        try:
            await scout(*route, message, timeout=min(seconds, ALONE_AT_MOST))
        finally:
            self._scouts.put_nowait(scout)

    async def _together(self, route: Route, message: Message, seconds: float) -> None:
        """A closed channel may be a neighbour's doing: its reason is no verdict on this message."""
        try:
            await self._shared(*route, message, timeout=seconds)
        except (NotAllowed, Unroutable) as error:
            if error.code == Unroutable.code:  # returned: this very message
                raise
            raise BrokerUnavailable(f"not confirmed: {error.reason}") from error


@asynccontextmanager
async def open_amqp(
    url: str, *, name: str, properties: Mapping[str, str]
) -> AsyncIterator[AmqpTargets]:
    """The links are opened when they are used."""
    links = [Connection(url, name=name, properties=properties) for _ in range(1 + SCOUTS)]
    shared, *scouts = (link.publish for link in links)
    try:
        yield AmqpTargets(shared, scouts)
    finally:
        for link in links:
            await link.close()


def _envelope(message: AmqpMessage, attempt: AttemptContext) -> Message:
    return Message(
        message.body() or b"",
        headers={**message.headers, **attempt.headers()},
        content_type=message.content_type(),
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=attempt.ticket.run_id,
        app_id=APP_ID,
    )
