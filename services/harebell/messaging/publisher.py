"""Publishing: confirmed, mandatory, persistent, bounded in flight and in time."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aio_pika
from aio_pika.abc import DeliveryMode
from pamqp.common import FieldValue

from harebell.client.connection import PUBLISH_TIMEOUT, Connection
from harebell.contract.amqp_names import APP_ID, JSON
from harebell.contract.errors import BrokerUnavailable, NotAllowed, Unroutable

MAX_UNCONFIRMED: Final = 500  # unconfirmed publishes; every confirm walks all outstanding ones

OnUnroutable: TypeAlias = Callable[[str, str, Unroutable], None]  # exchange and routing key first


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message on its way out."""

    exchange: str
    routing_key: str
    body: bytes
    type: str
    message_id: str
    content_type: str = JSON
    correlation_id: str | None = None
    headers: Mapping[str, FieldValue] = field(default_factory=dict)

    def message(self) -> aio_pika.Message:
        return aio_pika.Message(
            self.body,
            content_type=self.content_type,
            delivery_mode=DeliveryMode.PERSISTENT,
            type=self.type,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            app_id=APP_ID,
            headers=dict(self.headers),
        )


class Publisher:
    """The publishing half of a service; consuming has a connection of its own."""

    def __init__(self, link: Connection, on_unroutable: OnUnroutable | None = None) -> None:
        self._link = link
        self._on_unroutable = on_unroutable
        self._slots = asyncio.Semaphore(MAX_UNCONFIRMED)

    async def publish(self, outgoing: OutgoingMessage, *, within: float = PUBLISH_TIMEOUT) -> None:
        """Raises `Unroutable` and `BrokerUnavailable`, as `Link.publish` does.

        A service's own messages are not given up for want of a permission: it can be put right.
        """
        async with self._slots:
            try:
                await self._link.publish(
                    outgoing.exchange, outgoing.routing_key, outgoing.message(), timeout=within
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
        """Pipelined, up to IN_FLIGHT in order; waits for all, then raises the first failure."""
        results = await self.publish_each(messages, within=within)
        for failure in results:
            if failure is not None:
                raise failure

    async def publish_each(
        self, messages: Iterable[OutgoingMessage], *, within: float = PUBLISH_TIMEOUT
    ) -> list[BaseException | None]:
        """As `publish_all`, but tells what became of each."""
        tasks = (self.publish(message, within=within) for message in messages)
        return await asyncio.gather(*tasks, return_exceptions=True)
