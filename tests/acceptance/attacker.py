"""A tenant's login that sends messages by every route which the broker allows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import aio_pika
import orjson
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, ExchangeType
from pamqp.common import FieldValue
from tests.rig.polling import WAIT_TIMEOUT

from harebell.contract.amqp_names import tenant_exchange

EVENTS: Final = "harebell.events"


@dataclass(kw_only=True)
class Attacker:
    """A login with a queue for its answers. `user_id` is the property of its messages."""

    login: str
    connection: AbstractConnection
    channel: AbstractChannel
    user_id: str | None
    answers: "asyncio.Queue[Any]" = field(default_factory=asyncio.Queue)
    _numbers: "count[int]" = field(default_factory=count)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, login: str, *, has_user_id: bool = True
    ) -> AsyncIterator["Attacker"]:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            user_id = login if has_user_id else None
            attacker = cls(login=login, connection=connection, channel=channel, user_id=user_id)
            queue = await channel.declare_queue(attacker.answer_queue, exclusive=True)

            async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                attacker.answers.put_nowait(orjson.loads(message.body))

            await queue.consume(receive, no_ack=True)
            yield attacker

    @property
    def answer_queue(self) -> str:
        return f"{self.login}.answers"

    @property
    def exchange(self) -> str:
        """The exchange of the tenant."""
        return tenant_exchange(self.login)

    def message(self, body: Any, **properties: Any) -> aio_pika.Message:
        """Return a message whose answer goes to the queue of the login."""
        properties = {
            "reply_to": self.answer_queue,
            "user_id": self.user_id,
            "correlation_id": f"{self.login}-{next(self._numbers)}",
            **properties,
        }
        return aio_pika.Message(orjson.dumps(body), **properties)

    async def publish(self, exchange: str, key: str, message: aio_pika.Message) -> None:
        """Publish directly to an exchange of Harebell."""
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.publish(message, key)

    async def by_binding(self, exchange: str, key: str, message: aio_pika.Message) -> None:
        """Publish to an exchange of the login that is bound to the exchange of Harebell."""
        own = await self._own(f"{exchange}.source", ExchangeType.TOPIC)
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.bind(own, "#")
        await own.publish(message, key)

    async def by_dead_letter(self, exchange: str, key: str, message: aio_pika.Message) -> None:
        """Publish to a queue that dead-letters each message to the exchange with the key."""
        own = await self._own(f"{exchange}.{key}", ExchangeType.FANOUT)
        arguments: dict[str, FieldValue] = {
            "x-dead-letter-exchange": exchange,
            "x-dead-letter-routing-key": key,
            "x-message-ttl": 0,
        }
        queue = await self.channel.declare_queue(
            f"{self.login}.{exchange}.{key}", exclusive=True, arguments=arguments
        )
        await queue.bind(own)
        await own.publish(message, "any")

    async def by_alternate(self, exchange: str, key: str, message: aio_pika.Message) -> None:
        """Publish to an exchange of the login whose alternate exchange is that of Harebell."""
        own = await self._own(
            f"{exchange}.alternate", ExchangeType.TOPIC, {"alternate-exchange": exchange}
        )
        await own.publish(message, key)

    async def answer(self) -> Any:
        async with asyncio.timeout(WAIT_TIMEOUT):
            return await self.answers.get()

    async def answers_to(
        self,
        route: Callable[[str, str, aio_pika.Message], Awaitable[None]],
        requests: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> list[Any]:
        """Send each request (key, body) by a route to the own exchange, and return all answers."""
        for key, body in requests:
            await route(self.exchange, key, self.message(body))
        return [await self.answer() for _ in requests]

    async def _own(
        self, name: str, kind: ExchangeType, arguments: dict[str, Any] | None = None
    ) -> AbstractExchange:
        return await self.channel.declare_exchange(
            f"{self.login}.{name}", kind, auto_delete=False, arguments=arguments
        )


def error_codes(answers: Sequence[Any]) -> list[str]:
    """Return the error code of each answer, or `ok`."""
    return ["ok" if each.get("ok", True) else each["error"]["code"] for each in answers]
