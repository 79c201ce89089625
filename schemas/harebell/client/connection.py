"""The one home of connecting, confirms and publish timeouts. A link opens when it is used."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    DeliveryError,
    PublishError,
)
from pamqp.common import FieldValue
from yarl import URL

from harebell.contract.errors import BrokerUnavailable, InvalidInput, NotAllowed, Unroutable

SCHEMES: Final = ("amqp", "amqps")
HEARTBEAT: Final = 10  # seconds; a silent cut is noticed within two or three of them
CONNECT_TIMEOUT: Final = 5.0  # seconds
PUBLISH_TIMEOUT: Final = 5.0  # seconds, to the confirm; a blocked broker must not hang a service
# Seconds; a node that loses the others of its cluster may leave a question open for good.
BROKER_REPLY_TIMEOUT: Final = 5.0
CLOSE_TIMEOUT: Final = 1.0  # seconds; the broker misses a connection that is just gone, too
CHANNEL_REPLACE_PAUSE: Final = (
    1.0  # seconds between two channels of a link that is refused what it publishes
)

# A closed connection is a bare RuntimeError in places; one that is closed before its greeting has
# been read, as by a balancer whose broker is down, is the end of an iteration.
_LINK_ERRORS: Final = (
    *(AMQPError, ChannelInvalidStateError, RuntimeError, OSError, TimeoutError),
    *(StopAsyncIteration, EOFError),
)


@contextmanager
def translate_amqp_errors(failed: str) -> Iterator[None]:
    """Raises `BrokerUnavailable`, saying what failed, for whatever becomes of a lost link.

    The library cancels what waits for an answer when a connection is closed or found silent; a
    cancellation of our own passes.
    """
    try:
        yield
    except _LINK_ERRORS as error:
        raise BrokerUnavailable(f"{failed}: {_said(error)}") from error
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise BrokerUnavailable(f"{failed}: the connection is lost") from error


def parse_amqp_urls(urls: str) -> tuple[URL, ...]:
    """Of one broker, or of the nodes of a cluster: `amqp://a.example/,amqp://b.example/`.

    Raises `Malformed` for what is no AMQP URL, without showing it: it may hold a password.
    """
    try:
        found = tuple(URL(url.strip()) for url in urls.split(","))
    except ValueError:
        found = (URL(),)
    if not all(address.scheme in SCHEMES and address.host for address in found):
        raise InvalidInput("is not like amqp://user:password@host:5672/", field="amqp_url")
    if len({address.user for address in found}) > 1:
        raise InvalidInput("names several users: it is one cluster's", field="amqp_url")
    return found


async def connect(
    urls: str, *, name: str, properties: Mapping[str, str], heartbeat: int = HEARTBEAT
) -> AbstractConnection:
    """To the first node that answers, in an order of chance, so that clients spread over them.

    Raises `BrokerUnavailable`. `name` and `properties` are what the management UI shows;
    `heartbeat` in seconds, unless the URL says it.
    """
    nodes = parse_amqp_urls(urls)
    shown: dict[str, FieldValue] = {"connection_name": name, **properties}
    unanswered = BrokerUnavailable("cannot connect")
    for node in random.sample(nodes, k=len(nodes)):
        address = node if "heartbeat" in node.query else node.update_query(heartbeat=heartbeat)
        connection = aio_pika.Connection(address, client_properties=shown)
        try:
            with translate_amqp_errors("cannot connect"):
                await connection.connect(timeout=CONNECT_TIMEOUT)
        except BrokerUnavailable as error:
            await close(connection)  # or the library does when it is collected, in any thread
            unanswered = error
        else:
            return connection
    raise unanswered


async def close(connection: AbstractConnection) -> None:
    """Whatever becomes of it, and for so long at most.

    The library may wait for ever for a channel whose opening was cancelled.
    """
    if not connection.is_closed:
        with suppress(BrokerUnavailable), translate_amqp_errors("not closed"):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await connection.close()


@asynccontextmanager
async def open_probe_channel(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    """A channel for questions, which may be closed by a refusal."""
    async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
        channel = await connection.channel(publisher_confirms=False)
    try:
        yield channel
    finally:
        await _leave(channel)


class Connection:
    """One connection with one confirming channel, both opened again when they are found closed."""

    def __init__(self, url: str, *, name: str, properties: Mapping[str, str]) -> None:
        self._url = url
        self._name = name
        self._properties = properties
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._channel_since = 0.0
        self._is_unanswered = False  # its connection has left a channel's opening open
        self._refused: list[AbstractChannel] = []  # the last of them may still confirm something
        self._closed = False
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._channel is not None and not self._channel.is_closed

    async def open(self) -> None:
        await self.channel()

    async def channel(self) -> AbstractChannel:
        """The channel that `publish` uses; raises `BrokerUnavailable`."""
        if self._channel is not None and not self._channel.is_closed:
            return self._channel
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._open_channel()
            return self._channel

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        message: aio_pika.Message,
        *,
        timeout: float = PUBLISH_TIMEOUT,  # noqa: ASYNC109  # to the confirm, whatever is slow
    ) -> None:
        """Published and confirmed, or raises.

        `Unroutable`: no queue took it, or there is no such exchange. `NotAllowed`: the broker's
        permissions. `BrokerUnavailable`: not confirmed; it may have been published all the same.
        """
        channel: AbstractChannel | None = None
        with translate_amqp_errors("not confirmed"):
            try:
                async with asyncio.timeout(timeout):
                    channel = await self.channel()
                    target = await channel.get_exchange(exchange, ensure=False)
                    await target.publish(message, routing_key, mandatory=True)
            except PublishError as error:
                raise Unroutable(f"no queue is bound to {exchange} for {routing_key!r}") from error
            except ChannelNotFoundEntity as error:
                reason = f"there is no exchange {exchange!r}"
                raise Unroutable(reason, code="no_exchange") from error
            except ChannelAccessRefused as error:
                raise NotAllowed(f"may not publish {routing_key!r} to {exchange}") from error
            except TimeoutError:
                self._renew(channel)
                raise
            except DeliveryError as error:
                self._renew(channel)
                raise BrokerUnavailable(f"{exchange} refused it: a queue is full") from error

    async def close(self) -> None:
        """For good: a link that is used again raises `BrokerUnavailable`."""
        self._closed = True
        await self._drop()

    def _renew(self, channel: AbstractChannel | None) -> None:
        """The next message goes on another channel; what is on its way on this one may arrive.

        In RabbitMQ 3.10 a channel that finds no leader of a queue, because its node was killed
        just before, is refused for as long as it is open; one that knows a leader which is cut off
        waits for it until it is back.
        """
        now = asyncio.get_running_loop().time()
        if (
            channel is not None
            and channel is self._channel
            and now - self._channel_since > CHANNEL_REPLACE_PAUSE
        ):
            self._refused.append(channel)
            self._channel = None

    async def _open_channel(self) -> AbstractChannel:
        if self._closed:
            raise BrokerUnavailable("the link is closed")
        with translate_amqp_errors("cannot open a channel"):
            connection = await self._living()
            while len(self._refused) > 1:
                await _leave(self._refused.pop(0))
            self._channel_since = asyncio.get_running_loop().time()
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                await _until_unblocked(connection)
                self._is_unanswered = True
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            self._is_unanswered = False
            return channel

    async def _living(self) -> AbstractConnection:
        if self._connection is None or self._is_unanswered or _is_lost(self._connection):
            await self._drop()
            self._connection = await connect(
                self._url, name=self._name, properties=self._properties
            )
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._is_unanswered = False
        self._refused.clear()
        if connection is not None:
            await close(connection)


def _is_lost(connection: AbstractConnection) -> bool:
    """A lost connection never says that it is closed; for a moment, that it is connected."""
    transport = connection.transport
    return transport is None or transport.connection.is_closed or not connection.connected.is_set()


async def _leave(channel: AbstractChannel) -> None:
    """One that waits in the broker for a leader that is gone never says that it is closed."""
    if not channel.is_closed:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await channel.close()


async def _until_unblocked(connection: AbstractConnection) -> None:
    """A channel that is asked for meanwhile, and no longer wanted then, would be opened still."""
    if connection.transport is not None:
        await connection.transport.connection.ready()


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
