"""Requests and their responses over AMQP, with direct reply-to on the publishing channel.

A request has an unknown outcome if the broker does not confirm it, or if the connection is lost
before the response arrives. The response itself can be lost when a service is killed.
`RpcChannel` repeats such a request with the same message id until its timeout, the last one after
growing pauses. Harebell applies the repeated command once and returns the recorded response.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Any, Final, Protocol

from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, DeliveryMode

from harebell.client.trace import trace_headers
from harebell.connection.amqp import PUBLISH_TIMEOUT, Connection, translate_amqp_errors
from harebell.contract.amqp_names import APP_ID, DIRECT_REPLY, JSON, message_key, message_type
from harebell.contract.errors import BrokerUnavailable, ResponseTimeout

MAX_UNCONFIRMED_REQUESTS: Final = 500  # further requests wait for a confirm
RETRY_PAUSE: Final = 0.2  # seconds before a repeat after an error
REPEAT_PAUSE: Final = 4.0  # seconds without a response before the first repeat, then twice as many
TOKEN_BYTES: Final = 8  # random bytes that separate the message ids of connections


class Transport(Protocol):
    """A transport of request bodies to an exchange and of response bodies back."""

    async def request(self, exchange: str, verb: str, body: bytes, *, tenant: str) -> bytes: ...


@dataclass(slots=True, kw_only=True)
class _Request:
    exchange: str
    routing_key: str
    message: Message
    response: asyncio.Future[bytes]
    failure: BrokerUnavailable | None  # the reason of an unknown outcome


class RpcChannel:
    """The transport over AMQP, which sends any number of requests concurrently."""

    def __init__(self, connection: Connection, *, timeout: float, user: str | None) -> None:
        """Define the timeout of each request in seconds, and the `user_id` of its messages.

        The broker verifies `user_id`.
        """
        self._connection = connection
        self._timeout = timeout
        self._user = user
        self._token = token_hex(TOKEN_BYTES)
        self._numbers = count(1)
        self._responses: dict[str, asyncio.Future[bytes]] = {}
        self._unconfirmed = asyncio.Semaphore(MAX_UNCONFIRMED_REQUESTS)
        self._opening = asyncio.Lock()
        self._channel: AbstractChannel | None = None
        self._closed: asyncio.Future[None]  # done after the channel has closed

    async def request(self, exchange: str, verb: str, body: bytes, *, tenant: str) -> bytes:
        """Return the body of the response.

        Raise `ResponseTimeout`, `BrokerUnavailable`, `Unroutable` or `NotAllowed`.
        """
        message_id = f"{self._token}-{next(self._numbers)}"
        within = f"within {self._timeout:g} s"
        request = _Request(
            exchange=exchange,
            routing_key=message_key(tenant, verb),
            message=self._message(message_id, verb, body),
            response=asyncio.get_running_loop().create_future(),
            failure=BrokerUnavailable(f"The broker did not confirm the message {within}."),
        )
        self._responses[message_id] = request.response
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send_until_answered(request)
        except TimeoutError:
            reason = f"Harebell sent no response to {verb} {within}."
            raise request.failure or ResponseTimeout(reason) from None
        finally:
            del self._responses[message_id]

    def _message(self, message_id: str, verb: str, body: bytes) -> Message:
        return Message(
            body,
            content_type=JSON,
            delivery_mode=DeliveryMode.PERSISTENT,
            type=message_type(verb),
            message_id=message_id,
            correlation_id=message_id,
            reply_to=DIRECT_REPLY,
            app_id=APP_ID,
            user_id=self._user,
            headers=trace_headers(),
            timestamp=datetime.now(UTC),  # noqa: TID251  # for people; no code reads the time
        )

    async def _send_until_answered(self, request: _Request) -> bytes:
        pause = REPEAT_PAUSE
        while not request.response.done():
            try:
                await self._send_and_wait(request, pause)
                pause *= 2
            except BrokerUnavailable as error:
                request.failure = error
                await asyncio.sleep(RETRY_PAUSE)
        return request.response.result()

    async def _send_and_wait(self, request: _Request, seconds: float) -> None:
        """Send the request and wait for its response. Raise `BrokerUnavailable`."""
        async with self._unconfirmed:
            closed = await self._consume_replies()
            await self._connection.publish(
                request.exchange, request.routing_key, request.message, timeout=PUBLISH_TIMEOUT
            )
        request.failure = None
        ends: set[asyncio.Future[Any]] = {request.response, closed}
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if closed.done() and not request.response.done():
            raise BrokerUnavailable("The connection was lost before the response arrived.")

    async def _consume_replies(self) -> asyncio.Future[None]:
        """Consume replies on the present channel, because each channel receives only its own."""
        async with self._opening:
            channel = await self._connection.channel()
            if channel is self._channel:
                return self._closed
            closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            channel.close_callbacks.add(partial(_set_done, closed))
            with translate_amqp_errors("The client cannot consume replies"):
                replies = await channel.get_queue(DIRECT_REPLY, ensure=False)
                await replies.consume(self._receive, no_ack=True, timeout=PUBLISH_TIMEOUT)
            self._channel, self._closed = channel, closed
            return closed

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        response = self._responses.get(message.correlation_id or "")
        if response is not None and not response.done():
            response.set_result(message.body)


def _set_done(closed: asyncio.Future[None], *_: object) -> None:
    if not closed.done():
        closed.set_result(None)
