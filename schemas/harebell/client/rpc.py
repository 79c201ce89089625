"""Questions and their answers: direct reply-to on the publishing channel, told apart by id.

A message whose fate is unknown (no confirm, or the connection went before the answer came) is sent
again under the same id until time is up: Harebell answers it once, from the record.
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

from harebell.client.connection import PUBLISH_TIMEOUT, Connection, translate_amqp_errors
from harebell.contract.amqp_names import APP_ID, DIRECT_REPLY, JSON, message_key, message_type
from harebell.contract.errors import BrokerUnavailable, ResponseTimeout

IN_FLIGHT: Final = 500  # unconfirmed publishes; further ones wait for a confirm
RETRY_PAUSE: Final = 0.2  # seconds before a message is sent again
TOKEN: Final = 8  # random bytes that tell one connection's message ids from another's


class Transport(Protocol):
    """Takes a body to an exchange and brings the body of the answer."""

    async def request(self, exchange: str, tenant: str, verb: str, body: bytes) -> bytes: ...


@dataclass(slots=True)
class _Question:
    exchange: str
    routing_key: str
    message: Message
    answer: asyncio.Future[bytes]
    failure: BrokerUnavailable | None  # why it cannot be counted on to be answered


class RpcChannel:
    """The courier over AMQP. Any number of questions may be under way at once."""

    def __init__(self, link: Connection, *, timeout: float, login: str | None) -> None:
        """`timeout`: seconds for a whole question; `login`: the `user_id` the broker verifies."""
        self._link = link
        self._timeout = timeout
        self._login = login
        self._token = token_hex(TOKEN)
        self._numbers = count(1)
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._starting = asyncio.Lock()
        self._channel: AbstractChannel | None = None
        self._lost: asyncio.Future[None]  # done when that channel has closed

    async def request(self, exchange: str, tenant: str, verb: str, body: bytes) -> bytes:
        """Raises `AnswerTimeout`, `BrokerUnavailable`, `Unroutable` or `NotAllowed`."""
        name = f"{self._token}-{next(self._numbers)}"
        within = f"within {self._timeout:g} s"
        question = _Question(
            exchange,
            message_key(tenant, verb),
            self._message(name, verb, body),
            answer=asyncio.get_running_loop().create_future(),
            failure=BrokerUnavailable(f"not confirmed {within}"),
        )
        self._answers[name] = question.answer
        try:
            async with asyncio.timeout(self._timeout):
                return await self._insist(question)
        except TimeoutError:
            raise question.failure or ResponseTimeout(f"no answer to {verb} {within}") from None
        finally:
            del self._answers[name]

    def _message(self, name: str, verb: str, body: bytes) -> Message:
        return Message(
            body,
            content_type=JSON,
            delivery_mode=DeliveryMode.PERSISTENT,
            type=message_type(verb),
            message_id=name,
            correlation_id=name,
            reply_to=DIRECT_REPLY,
            app_id=APP_ID,
            user_id=self._login,
            timestamp=datetime.now(UTC),  # noqa: TID251  # for people to read; decides nothing
        )

    async def _insist(self, question: _Question) -> bytes:
        while not question.answer.done():
            try:
                await self._send_and_wait(question)
            except BrokerUnavailable as error:
                question.failure = error
                await asyncio.sleep(RETRY_PAUSE)
        return question.answer.result()

    async def _send_and_wait(self, question: _Question) -> None:
        async with self._slots:
            lost = await self._listen()
            await self._link.publish(
                question.exchange, question.routing_key, question.message, timeout=PUBLISH_TIMEOUT
            )
        question.failure = None
        ends: set[asyncio.Future[Any]] = {question.answer, lost}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not question.answer.done():
            raise BrokerUnavailable("the connection was lost before the answer came")

    async def _listen(self) -> asyncio.Future[None]:
        """Answers come only to the channel that asked: listen anew on each one."""
        async with self._starting:
            channel = await self._link.channel()
            if channel is self._channel:
                return self._lost
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            channel.close_callbacks.add(partial(_mark, lost))
            with translate_amqp_errors("cannot listen for answers"):
                replies = await channel.get_queue(DIRECT_REPLY, ensure=False)
                await replies.consume(self._receive, no_ack=True, timeout=PUBLISH_TIMEOUT)
            self._channel, self._lost = channel, lost
            return lost

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        answer = self._answers.get(message.correlation_id or "")
        if answer is not None and not answer.done():
            answer.set_result(message.body)


def _mark(lost: asyncio.Future[None], *_: object) -> None:
    if not lost.done():
        lost.set_result(None)
