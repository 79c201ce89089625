"""The parking queue: dead letters that cannot be stored, which nothing consumes."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection

from harebell.connection.amqp import (
    BROKER_REPLY_TIMEOUT,
    close,
    open_probe_channel,
    translate_amqp_errors,
)
from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.errors import NotAllowed, Transient
from harebell.contract.queries import ParkedList
from harebell.contract.redaction import redact_bytes
from harebell.contract.views import ParkedMessageView, ParkedView
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.model.dead_letter import parse_x_death
from harebell.messaging.received_message import ReceivedMessage, UnacknowledgedTags
from harebell.messaging.received_properties import Undecodable
from harebell.messaging.topology.bus import PARKED_DEAD_LETTERS

COUNT_INTERVAL: Final = 30.0  # seconds
MAX_SHOWN_BODY: Final = 4096  # bytes
MAX_READ: Final = 32 * 1024 * 1024  # bytes of bodies, after which no further message is read

Connect: TypeAlias = Callable[[], Awaitable[AbstractConnection]]

log = structlog.get_logger()


class ParkingQueue:
    """The reader of the parking queue, which leaves every message in the queue."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.count = 0  # messages at the last look

    async def run(self) -> None:
        """Count the messages regularly until the task is cancelled."""
        while True:
            try:
                await self._read(limit=0)
            except Transient as error:
                log.warning("parked dead letters not counted", reason=error.reason)
            await asyncio.sleep(COUNT_INTERVAL)

    async def show(self, tenant: str, query: ParkedList) -> ParkedView:
        """Return the number of messages and the oldest ones.

        Raise `NotAllowed` for a tenant, because the messages may contain those of any tenant.
        Raise `BrokerUnavailable`.
        """
        if tenant != OPERATIONS_TENANT:
            reason = f"Only operators may list parked messages, for the tenant {OPERATIONS_TENANT}."
            raise NotAllowed(reason)
        return await self._read(limit=query.limit)

    async def _read(self, *, limit: int) -> ParkedView:
        connection = await self._connect()
        try:
            with translate_amqp_errors("The parking queue cannot be read"):
                async with (
                    asyncio.timeout(BROKER_REPLY_TIMEOUT),
                    open_probe_channel(connection) as channel,
                ):
                    queue = await channel.declare_queue(PARKED_DEAD_LETTERS.name, passive=True)
                    self.count = queue.declaration_result.message_count or 0
                    metrics.DEAD_LETTERS_PARKED.set(self.count)
                    return ParkedView(total=self.count, messages=await _peek(channel, limit))
        finally:
            await close(connection)


async def _peek(channel: AbstractChannel, limit: int) -> list[ParkedMessageView]:
    """Return the first messages. The end of the channel returns them to their places."""
    underlay = await channel.get_underlay_channel()
    tags = UnacknowledgedTags(underlay)
    messages: list[ParkedMessageView] = []
    while len(messages) < limit and sum(each.size for each in messages) < MAX_READ:
        delivered = await underlay.basic_get(PARKED_DEAD_LETTERS.name)
        if delivered.delivery_tag is None:
            break
        messages.append(_view(ReceivedMessage.of(delivered, tags)))
    return messages


def _view(message: ReceivedMessage) -> ParkedMessageView:
    try:
        death = parse_x_death(message.headers)
    except Undecodable:
        death = None
    return ParkedMessageView(
        message_id=message.message_id,
        type=message.type,
        routing_key=message.routing_key,
        reason=death.reason if death else None,
        parked_at=death.at if death else None,
        size=len(message.body),
        body=base64.b64encode(redact_bytes(message.body)[:MAX_SHOWN_BODY]).decode(),
    )
