"""Publishing of persistent and mandatory messages with confirms, bounded in number and time."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aio_pika
from aio_pika.abc import DeliveryMode
from pamqp.common import FieldValue

from harebell.connection.amqp import PUBLISH_TIMEOUT, Connection
from harebell.contract.amqp_names import APP_ID, JSON
from harebell.contract.errors import BrokerUnavailable, NotAllowed, Unroutable

# The client library visits all unconfirmed messages for each confirm.
MAX_UNCONFIRMED: Final = 500  # messages

OnUnroutable: TypeAlias = Callable[[str, str, Unroutable], None]  # exchange and routing key first


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to publish."""

    exchange: str
    routing_key: str
    body: bytes
    type: str
    message_id: str
    content_type: str = JSON
    correlation_id: str | None = None
    headers: Mapping[str, FieldValue] = field(default_factory=dict)

    def to_aio_pika(self, login: str | None = None) -> aio_pika.Message:
        """Return the message. `login` is that of the publisher, which the broker verifies."""
        return aio_pika.Message(
            self.body,
            content_type=self.content_type,
            delivery_mode=DeliveryMode.PERSISTENT,
            type=self.type,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            user_id=login,
            app_id=APP_ID,
            headers=dict(self.headers),
        )


class Publisher:
    """The publisher of a service, with a connection that no consumer uses.

    The receivers accept a message between services only with the `login` of a service.
    """

    def __init__(
        self,
        connection: Connection,
        on_unroutable: OnUnroutable | None = None,
        *,
        login: str | None = None,
    ) -> None:
        self._login = login
        self._connection = connection
        self._on_unroutable = on_unroutable
        self._slots = asyncio.Semaphore(MAX_UNCONFIRMED)

    async def publish(self, outgoing: OutgoingMessage, *, within: float = PUBLISH_TIMEOUT) -> None:
        """Publish the message and wait up to `within` seconds for the confirm.

        Raise `Unroutable` if no queue takes the message, and `BrokerUnavailable` otherwise.
        A missing permission is `BrokerUnavailable` too, because an operator can grant it.
        """
        async with self._slots:
            try:
                await self._connection.publish(
                    outgoing.exchange,
                    outgoing.routing_key,
                    outgoing.to_aio_pika(self._login),
                    timeout=within,
                )
            except NotAllowed as error:
                raise BrokerUnavailable(error.reason, code=error.code) from error
            except Unroutable as error:
                if self._on_unroutable is not None:
                    self._on_unroutable(outgoing.exchange, outgoing.routing_key, error)
                raise

    async def publish_all(
        self, messages: Iterable[OutgoingMessage], *, within: float = PUBLISH_TIMEOUT
    ) -> None:
        """Publish all messages, wait for every confirm, then raise the first error.

        Up to `MAX_UNCONFIRMED` messages are published in order without waiting for a confirm.
        """
        results = await self.publish_each(messages, within=within)
        for failure in results:
            if failure is not None:
                raise failure

    async def publish_each(
        self, messages: Iterable[OutgoingMessage], *, within: float = PUBLISH_TIMEOUT
    ) -> list[BaseException | None]:
        """Publish all messages and return the error of each, or None after a confirm."""
        tasks = (self.publish(message, within=within) for message in messages)
        return await asyncio.gather(*tasks, return_exceptions=True)
