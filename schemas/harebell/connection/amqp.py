"""Connections to RabbitMQ: URLs, confirms, publish timeouts and the replacement of channels."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, cast

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq import Channel
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

from harebell.connection.cancellation import is_being_cancelled, raise_if_cancelled
from harebell.connection.tls import BAD_CERTIFICATE, TlsServer, certificate_fault
from harebell.contract.errors import BrokerUnavailable, InvalidInput, NotAllowed, Unroutable

DEFAULT_USER: Final = "guest"  # the login of the AMQP library for a URL without a user
SCHEMES: Final = ("amqp", "amqps")
TLS_PARAMETERS: Final = ("cafile", "certfile", "keyfile", "no_verify_ssl")
AUTHENTICATIONS: Final = ("plain", "external")  # with external, the certificate is the login
HEARTBEAT: Final = 10  # seconds; a silent loss is found within two or three heartbeats
CONNECT_TIMEOUT: Final = 5.0  # seconds
PUBLISH_TIMEOUT: Final = 5.0  # seconds until the confirm; a blocked broker must not stop a service
# Seconds. A node that loses the other nodes of its cluster may never reply to a method.
BROKER_REPLY_TIMEOUT: Final = 5.0
CLOSE_TIMEOUT: Final = 1.0  # seconds; the broker also detects a connection that is not closed
CHANNEL_REPLACE_PAUSE: Final = 1.0  # seconds between two replacements of a channel

# The library raises a bare RuntimeError for some closed connections. A connection that closes
# before its greeting, as behind a load balancer without a broker, raises StopAsyncIteration.
_CONNECTION_ERRORS: Final = (
    AMQPError,
    ChannelInvalidStateError,
    RuntimeError,
    OSError,
    TimeoutError,
    StopAsyncIteration,
    EOFError,
)


@contextmanager
def translate_amqp_errors(failed: str) -> Iterator[None]:
    """Raise `BrokerUnavailable` for every error of a lost connection.

    `failed` is the first clause of the reason. When a connection closes, the library cancels the
    tasks that wait on it, which raises `BrokerUnavailable` too. If the calling task is cancelled,
    that passes, even if an error of the connection hides it.
    """
    try:
        yield
    except _CONNECTION_ERRORS as error:
        raise_if_cancelled(error)
        raise BrokerUnavailable(f"{failed}: {_error_text(error)}.") from error
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise BrokerUnavailable(f"{failed}: the connection is lost.") from error


def parse_amqp_urls(urls: str) -> tuple[URL, ...]:
    """Return the URL of one broker, or of each node: `amqp://a.example/,amqp://b.example/`.

    Raise `InvalidInput` for another text. The reason omits the text, which may contain a password.
    """
    try:
        found = tuple(URL(url.strip()) for url in urls.split(","))
    except ValueError:
        found = (URL(),)
    if not all(url.scheme in SCHEMES and url.host for url in found):
        reason = "Each AMQP URL must have the form amqp://user:password@host:5672/."
        raise InvalidInput(reason, field="amqp_url")
    for url in found:
        _check_tls_parameters(url)
    if len({url.user for url in found}) > 1:
        reason = "The AMQP URLs of the nodes of one cluster must have the same user."
        raise InvalidInput(reason, field="amqp_url")
    return found


def login_of(urls: str) -> str | None:
    """Return the login that the URLs name, or None if a certificate is the login."""
    url = parse_amqp_urls(urls)[0]
    if url.user is None and url.query.get("auth") == "external":
        return None
    return url.user or DEFAULT_USER


def _check_tls_parameters(url: URL) -> None:
    for name in TLS_PARAMETERS:
        if name in url.query and url.scheme != "amqps":
            reason = f"The parameter {name} of an AMQP URL needs the scheme amqps."
            raise InvalidInput(reason, field="amqp_url")
    if ("certfile" in url.query) != ("keyfile" in url.query):
        reason = "An AMQP URL must have both parameters certfile and keyfile, or neither."
        raise InvalidInput(reason, field="amqp_url")
    auth = url.query.get("auth", "plain")
    if auth not in AUTHENTICATIONS:
        known = " or ".join(AUTHENTICATIONS)
        raise InvalidInput(
            f"The parameter auth of an AMQP URL must be {known}, not {auth!r}.", field="amqp_url"
        )
    if auth == "external" and "certfile" not in url.query:
        reason = "An AMQP URL with auth=external must have the parameters certfile and keyfile."
        raise InvalidInput(reason, field="amqp_url")


async def connect(
    urls: str, *, name: str, properties: Mapping[str, str], heartbeat: int = HEARTBEAT
) -> AbstractConnection:
    """Connect to the first node that responds, in a random order that distributes clients.

    The management UI shows `name` and `properties`. `heartbeat` in seconds applies if the URL has
    none. Each call reads the files of the certificates again, so their rotation needs no restart.
    Raise `BrokerUnavailable`, with the code `bad_certificate` if a certificate is the reason.
    """
    nodes = parse_amqp_urls(urls)
    shown: dict[str, FieldValue] = {"connection_name": name, **properties}
    failure = BrokerUnavailable("The client cannot connect.")
    for node in random.sample(nodes, k=len(nodes)):
        url = node if "heartbeat" in node.query else node.update_query(heartbeat=heartbeat)
        connection = aio_pika.Connection(url, client_properties=shown)
        try:
            with translate_amqp_errors("The client cannot connect"):
                await connection.connect(timeout=CONNECT_TIMEOUT)
        except BrokerUnavailable as error:
            await close(connection)  # otherwise the garbage collector closes it in any thread
            fault = await certificate_fault(error, TlsServer.of_broker(node))
            failure = BrokerUnavailable(str(fault), code=BAD_CERTIFICATE) if fault else error
        else:
            return connection
    raise failure


async def close(connection: AbstractConnection) -> None:
    """Close the connection, in any state, within `CLOSE_TIMEOUT`.

    The library may wait forever for a channel whose opening was cancelled.
    """
    if not connection.is_closed:
        with suppress(BrokerUnavailable), translate_amqp_errors("The connection is not closed"):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await connection.close()


@asynccontextmanager
async def open_probe_channel(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    """Open a separate channel for declarations, because an error closes the channel."""
    async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
        channel = await connection.channel(publisher_confirms=False)
    try:
        yield channel
    finally:
        await _close_channel(channel)


class Connection:
    """A connection with one confirming channel. `publish` opens either again if it is closed."""

    def __init__(self, url: str, *, name: str, properties: Mapping[str, str]) -> None:
        self._url = url
        self._name = name
        self._properties = properties
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._channel_since = 0.0
        self._is_opening_channel = False  # or the broker never replied to the opening
        self._replaced: list[AbstractChannel] = []  # the last of them may still receive confirms
        self._closed = False
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Return whether the channel is open."""
        return self._channel is not None and not self._channel.is_closed

    async def open(self) -> None:
        """Connect and open the channel. Raise `BrokerUnavailable`."""
        await self.channel()

    async def channel(self) -> AbstractChannel:
        """Return the channel of `publish`, and open it if it is closed.

        Raise `BrokerUnavailable`.
        """
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
        timeout: float = PUBLISH_TIMEOUT,  # noqa: ASYNC109  # until the confirm, with reconnects
    ) -> None:
        """Publish a message and wait for its confirm.

        Raise `Unroutable` if no queue received the message or the exchange does not exist, and
        `NotAllowed` without the permission. Raise `BrokerUnavailable` without a confirm. The broker
        may then have the message.
        """
        channel: AbstractChannel | None = None
        with translate_amqp_errors("The broker did not confirm the message"):
            try:
                async with asyncio.timeout(timeout):
                    channel = await self.channel()
                    underlay = cast("Channel", await channel.get_underlay_channel())
                    # The exchanges of aio-pika would send one message in each pass of the loop.
                    await underlay.basic_publish(
                        message.body,
                        exchange=exchange,
                        routing_key=routing_key,
                        properties=message.properties,
                        mandatory=True,
                        wait=False,
                    )
            except PublishError as error:
                reason = f"No queue is bound to the exchange {exchange} for {routing_key!r}."
                raise Unroutable(reason) from error
            except ChannelNotFoundEntity as error:
                reason = f"The broker has no exchange {exchange!r}."
                raise Unroutable(reason, code="no_exchange") from error
            except ChannelAccessRefused as error:
                reason = f"The user must not publish {routing_key!r} to the exchange {exchange}."
                raise NotAllowed(reason) from error
            except TimeoutError:
                self._replace_channel(channel)
                raise
            except DeliveryError as error:
                self._replace_channel(channel)
                reason = f"The exchange {exchange} rejected the message, because a queue is full."
                raise BrokerUnavailable(reason) from error

    async def close(self) -> None:
        """Close the connection permanently. A later call raises `BrokerUnavailable`."""
        self._closed = True
        await self._drop()

    def _replace_channel(self, channel: AbstractChannel | None) -> None:
        """Publish the next message on a new channel. The present one may still receive confirms.

        In RabbitMQ 3.10, a channel may find no leader of a queue whose node was just killed, and
        then every message of it is rejected. If it knows a disconnected leader, it waits until that
        leader returns.
        """
        now = asyncio.get_running_loop().time()
        if (
            channel is not None
            and channel is self._channel
            and now - self._channel_since > CHANNEL_REPLACE_PAUSE
        ):
            self._replaced.append(channel)
            self._channel = None

    async def _open_channel(self) -> AbstractChannel:
        if self._closed:
            raise BrokerUnavailable("The connection is already closed.")
        with translate_amqp_errors("The client cannot open a channel"):
            connection = await self._usable_connection()
            while len(self._replaced) > 1:
                await _close_channel(self._replaced.pop(0))
            self._channel_since = asyncio.get_running_loop().time()
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                await _wait_until_unblocked(connection)
                self._is_opening_channel = True
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            self._is_opening_channel = False
            return channel

    async def _usable_connection(self) -> AbstractConnection:
        if self._connection is None or self._is_opening_channel or _is_lost(self._connection):
            await self._drop()
            self._connection = await connect(
                self._url, name=self._name, properties=self._properties
            )
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._is_opening_channel = False
        self._replaced.clear()
        if connection is not None:
            await close(connection)


def _is_lost(connection: AbstractConnection) -> bool:
    """Return whether a connection is lost, which its own `is_closed` does not report."""
    transport = connection.transport
    return transport is None or transport.connection.is_closed or not connection.connected.is_set()


async def _close_channel(channel: AbstractChannel) -> None:
    """Close a channel. The broker never confirms this while the channel waits for a lost leader."""
    if not channel.is_closed:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await channel.close()


async def _wait_until_unblocked(connection: AbstractConnection) -> None:
    """Wait before the request for a channel.

    A request that is cancelled while the connection is blocked still opens its channel later.
    """
    if connection.transport is not None:
        await connection.transport.connection.ready()


def _error_text(error: BaseException) -> str:
    return (str(error) or type(error).__name__).rstrip(".")
