"""Replies to commands and queries, which delay nothing that a service does.

A reply has no confirm, and each receiver has a connection of its own. Some names of direct replies
end the connection that publishes to them, and some queues take messages slowly or not at all. Such
a name or queue then affects only the replies of the client that sent it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol, TypeAlias

import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection

from harebell.connection.amqp import (
    BROKER_REPLY_TIMEOUT,
    PUBLISH_TIMEOUT,
    close,
    translate_amqp_errors,
)
from harebell.contract.amqp_names import message_type
from harebell.contract.errors import BrokerUnavailable, Rejected
from harebell.contract.json_codec import encode
from harebell.contract.responses import error_response
from harebell.messaging import metrics
from harebell.messaging.publisher import OutgoingMessage
from harebell.runtime.clock import monotonic

DEFAULT_EXCHANGE: Final = ""
MAX_REPLY_BYTES: Final = 12 * 1024 * 1024  # RabbitMQ 4 accepts messages of up to 16 MiB
REPLY_TOO_LARGE: Final = "reply_too_large"
MAX_ID_BYTES: Final = 255  # of a property in AMQP

MAX_WAITING: Final = 2_000  # replies of one receiver
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024  # of one receiver
MAX_ALL_BYTES: Final = 256 * 1024 * 1024  # of all receivers together
MAX_RECEIVERS: Final = 200  # with a connection each
MAX_WAIT: Final = 10.0  # seconds, after which most clients no longer wait for a reply
MAX_IDLE: Final = 60.0  # seconds, after which the connection of a receiver is closed
REOPEN_PAUSE: Final = 0.5  # seconds between two openings of the connection of one receiver

OpenReplyConnection: TypeAlias = Callable[[str], Awaitable[AbstractConnection]]

log = structlog.get_logger()


def reply(
    reply_to: str, correlation_id: str | None, body: bytes, *, message_id: str
) -> OutgoingMessage:
    """Return the message that carries the response in `body` to the queue `reply_to`.

    The broker would refuse a response that is too large, so an error replaces it. It would also
    refuse a message id that is too long, so the correlation id, which it has accepted, replaces it.
    """
    if len(message_id.encode()) > MAX_ID_BYTES:
        message_id = correlation_id or ""
    if len(body) > MAX_REPLY_BYTES:
        reason = f"The response has {len(body)} bytes, but must have at most {MAX_REPLY_BYTES}."
        body = encode(error_response(Rejected(reason, code=REPLY_TOO_LARGE)))
    return OutgoingMessage(
        exchange=DEFAULT_EXCHANGE,
        routing_key=reply_to,
        body=body,
        type=message_type("response"),
        message_id=message_id,
        correlation_id=correlation_id,
    )


class ReplySender(Protocol):
    """The way of replies out of a service."""

    def send(self, receiver: str, outgoing: OutgoingMessage) -> None:
        """Send a reply soon, or never. `receiver` is the login of the client, or its tenant."""
        ...


class Replies:
    """The sender of replies. A reply that cannot be sent in time is dropped and counted.

    If a reply is lost, its client repeats the request, which changes nothing twice.
    `open_connection` receives the name of the receiver.
    """

    def __init__(self, open_connection: OpenReplyConnection) -> None:
        self._open_connection = open_connection
        self._lanes: dict[str, _Lane] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def send(self, receiver: str, outgoing: OutgoingMessage) -> None:
        """Queue the reply for the connection of its receiver, and wait for nothing."""
        lane = self._lanes.get(receiver) or self._add_lane(receiver)
        if lane is None:
            _drop("receivers", receiver)
        elif not self._has_room(outgoing) or not lane.add(outgoing):
            _drop("full", receiver)

    def _has_room(self, outgoing: OutgoingMessage) -> bool:
        waiting = sum(each.waiting_bytes for each in self._lanes.values())
        return waiting + len(outgoing.body) <= MAX_ALL_BYTES

    async def close(self, *, within: float) -> None:
        """Wait `within` seconds for the replies that wait, and then close the connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await asyncio.gather(*(each.sent.wait() for each in self._lanes.values()))
        for lane in self._lanes.values():
            self._stop(lane)
        self._lanes.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _add_lane(self, receiver: str) -> "_Lane | None":
        """Return the new lane. The receiver that has been idle longest makes place for it."""
        if len(self._lanes) >= MAX_RECEIVERS:
            idle = [name for name, each in self._lanes.items() if each.sent.is_set()]
            if not idle:
                return None
            self._stop(self._lanes.pop(min(idle, key=lambda name: self._lanes[name].used_at)))
        lane = _Lane(
            receiver,
            open_connection=self._open_connection,
            on_idle=lambda: self._lanes.pop(receiver),
        )
        self._lanes[receiver] = lane
        return lane

    def _stop(self, lane: "_Lane") -> None:
        lane.task.cancel()
        self._closing.add(lane.task)
        lane.task.add_done_callback(self._closing.discard)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A reply that waits, with the monotonic time at which it is too late."""

    outgoing: OutgoingMessage
    until: float


@dataclass(slots=True, eq=False)
class _Lane:
    """The replies of one receiver, in order, with their connection while there are replies."""

    receiver: str
    _: KW_ONLY
    open_connection: OpenReplyConnection
    on_idle: Callable[[], object]  # called when the lane ends because no reply came
    used_at: float = field(default_factory=monotonic)
    waiting_bytes: int = 0
    sent: asyncio.Event = field(default_factory=asyncio.Event)  # set while no reply waits
    task: asyncio.Task[None] = field(init=False)
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _added: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: AbstractConnection | None = None
    _channel: AbstractChannel | None = None
    _open_at: float = 0.0  # the monotonic time of the next opening

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self._run())

    def add(self, outgoing: OutgoingMessage) -> bool:
        """Return whether the bounds of the lane permit the reply."""
        size = len(outgoing.body)
        if len(self._waiting) >= MAX_WAITING or self.waiting_bytes + size > MAX_WAITING_BYTES:
            return False
        self._waiting.append(_Waiting(outgoing, monotonic() + MAX_WAIT))
        self.waiting_bytes += size
        self.sent.clear()
        self._added.set()
        return True

    async def _run(self) -> None:
        """Send the replies until none was added for `MAX_IDLE`."""
        try:
            while await self._has_reply():
                waiting = self._waiting[0]
                if monotonic() > waiting.until:
                    _drop("late", self.receiver)
                elif not await self._send(waiting.outgoing):
                    continue
                self._waiting.popleft()
                self.waiting_bytes -= len(waiting.outgoing.body)
            self.on_idle()
        finally:
            await self._disconnect()

    async def _has_reply(self) -> bool:
        while not self._waiting:
            self.sent.set()
            self.used_at = monotonic()
            self._added.clear()
            try:
                async with asyncio.timeout(MAX_IDLE):
                    await self._added.wait()
            except TimeoutError:
                return bool(self._waiting)
        return True

    async def _send(self, outgoing: OutgoingMessage) -> bool:
        """Return whether the reply was sent. The next try uses another connection."""
        try:
            with translate_amqp_errors("The reply is not sent"):
                channel = await self._open_channel()
                underlay = await channel.get_underlay_channel()
                async with asyncio.timeout(PUBLISH_TIMEOUT):
                    await underlay.basic_publish(
                        outgoing.body,
                        routing_key=outgoing.routing_key,
                        properties=outgoing.to_aio_pika().properties,
                    )
        except BrokerUnavailable as error:
            log.info("reply not sent", receiver=self.receiver, reason=error.reason)
            await self._disconnect()
            return False
        except Exception:  # an escaped error would end the lane
            log.exception("reply failed", receiver=self.receiver)
            _drop("failed", self.receiver)
        return True

    async def _open_channel(self) -> AbstractChannel:
        if self._channel is not None and not self._channel.is_closed:
            return self._channel
        await self._disconnect()
        await asyncio.sleep(max(0.0, self._open_at - monotonic()))
        self._open_at = monotonic() + REOPEN_PAUSE
        self._connection = await self.open_connection(self.receiver)
        async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
            self._channel = await self._connection.channel(publisher_confirms=False)
        return self._channel

    async def _disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await close(connection)


def _drop(reason: str, receiver: str) -> None:
    metrics.DROPPED_REPLIES.labels(reason).inc()
    log.info("reply dropped", reason=reason, receiver=receiver)
