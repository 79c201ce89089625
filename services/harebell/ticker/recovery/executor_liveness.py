"""The liveness of executors and the load of their lanes, from passive queue declarations."""

import asyncio
from dataclasses import dataclass
from typing import Final

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity
from pamqp.commands import Queue

from harebell.bootstrap.service_context import connection_properties
from harebell.connection.amqp import BROKER_REPLY_TIMEOUT, close, connect, translate_amqp_errors
from harebell.contract.amqp_names import Lane
from harebell.contract.errors import BrokerUnavailable
from harebell.messaging.topology.bus import (
    DISPATCHER,
    INTAKE,
    REPORTS,
    executor_control_queue,
    work_queue,
)
from harebell.runtime.clock import monotonic
from harebell.runtime.settings import ServiceSettings

# The failure that opened a younger connection may also have closed the executor's connection.
MIN_CONNECTION_AGE: Final = 2.0  # seconds


@dataclass(slots=True)
class ExecutorLiveness:
    """A connection for passive declarations, because a failed one closes its channel."""

    settings: ServiceSettings
    _connection: AbstractConnection | None = None
    _opened_at: float = 0.0

    async def is_gone(self, executor: str) -> bool:
        """Return whether the exclusive queue of the executor has gone with its connection.

        Return False if the broker is not reachable.
        """
        try:
            count = await self._message_count(executor_control_queue(executor))
        except BrokerUnavailable:
            return False
        return count is None and monotonic() - self._opened_at > MIN_CONNECTION_AGE

    async def is_queue_empty(self, pool: str, lane: str) -> bool:
        """Return whether neither the work queue of the lane nor the dispatcher has a ticket.

        Return False if the broker is not reachable.
        """
        try:
            count = await self._message_count(work_queue(pool, Lane(lane)).name)
            return count == 0 and await self._message_count(DISPATCHER.name) == 0
        except BrokerUnavailable:
            return False

    async def are_reports_read(self) -> bool:
        """Return whether consumers exist for both queues on the way of a worker's heartbeat.

        Return False if the broker is not reachable.
        """
        try:
            results = [await self._declare(queue.name) for queue in (INTAKE, REPORTS)]
        except BrokerUnavailable:
            return False
        return all(result is not None and result.consumer_count for result in results)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    async def _message_count(self, queue: str) -> int | None:
        """Return the number of messages, or None if the queue does not exist.

        Return at least 1 for an exclusive queue of another connection.
        """
        try:
            result = await self._declare(queue)
        except ChannelLockedResource:
            return 1
        return None if result is None else result.message_count or 0

    async def _declare(self, queue: str) -> Queue.DeclareOk | None:
        """Return the counts of a queue, or None if the queue does not exist."""
        with translate_amqp_errors("The state of the queue cannot be read"):
            try:
                async with (
                    asyncio.timeout(BROKER_REPLY_TIMEOUT),
                    (await self._open()).channel(publisher_confirms=False) as channel,
                ):
                    declared = await channel.declare_queue(queue, passive=True)
            except ChannelNotFoundEntity:
                return None
        return declared.declaration_result

    async def _open(self) -> AbstractConnection:
        if self._connection is None or not self._connection.connected.is_set():
            await self.close()
            self._connection = await connect(
                self.settings.amqp_url.get_secret_value(),
                name=f"{self.settings.instance_id} checks executors",
                properties=connection_properties("ticker", self.settings.instance_id),
            )
            self._opened_at = monotonic()
        return self._connection
