"""What the broker knows of executors: whether one is connected, whether its lane has work."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity

from harebell.bootstrap.service_context import connection_properties
from harebell.client.connection import BROKER_REPLY_TIMEOUT, close, connect, translate_amqp_errors
from harebell.contract.amqp_names import Lane
from harebell.contract.errors import BrokerUnavailable
from harebell.messaging.topology.bus import DISPATCHER, executor_control_queue, work_queue
from harebell.runtime.clock import monotonic
from harebell.runtime.settings import ServiceSettings

MIN_CONNECTION_AGE: Final = (
    2.0  # seconds; a younger connection of ours may be from the same broken moment
)


@dataclass(slots=True)
class ExecutorLiveness:
    """Passive declarations on a connection of its own; a refused one closes its channel."""

    settings: ServiceSettings
    _connection: AbstractConnection | None = None
    _since: float = field(default=0.0)

    async def is_gone(self, holder: str) -> bool:
        """Whether an executor's exclusive queue went with its connection. In doubt, it did not."""
        try:
            return (
                await self._messages(executor_control_queue(holder)) is None and self._is_settled()
            )
        except BrokerUnavailable:
            return False

    async def is_queue_empty(self, pool: str, lane: str) -> bool:
        """Whether no work waits for a lane, nor on its way there; in doubt, it does."""
        try:
            waiting = await self._messages(work_queue(pool, Lane(lane)).name)
            return waiting == 0 and await self._messages(DISPATCHER.name) == 0
        except BrokerUnavailable:
            return False

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    def _is_settled(self) -> bool:
        return monotonic() - self._since > MIN_CONNECTION_AGE

    async def _messages(self, queue: str) -> int | None:
        """None when there is no such queue; at least 1 when it is another's own."""
        with translate_amqp_errors("cannot look"):
            try:
                async with (
                    asyncio.timeout(BROKER_REPLY_TIMEOUT),
                    (await self._open()).channel(publisher_confirms=False) as channel,
                ):
                    declared = await channel.declare_queue(queue, passive=True)
            except ChannelNotFoundEntity:
                return None
            except ChannelLockedResource:
                return 1
        return declared.declaration_result.message_count or 0

    async def _open(self) -> AbstractConnection:
        if self._connection is None or not self._connection.connected.is_set():
            await self.close()
            self._connection = await connect(
                self.settings.amqp_url.get_secret_value(),
                name=f"{self.settings.instance_id} looks",
                properties=connection_properties("ticker", self.settings.instance_id),
            )
            self._since = monotonic()
        return self._connection
