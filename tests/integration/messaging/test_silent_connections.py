"""A connection that becomes silent is a lost connection in every phase of its life."""

import asyncio

import pytest
from aio_pika import Message
from aio_pika.abc import AbstractConnection
from tests.integration.bootstrap.clocks import fixed_time
from tests.rig.tcp_proxy import AmqpProxy, TcpProxy

from harebell.connection.amqp import CHANNEL_REPLACE_PAUSE, Connection, close, connect
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.acknowledge import DONE, Acknowledger, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, Consumer
from harebell.messaging.declare import declare, find_missing
from harebell.messaging.publisher import Publisher
from harebell.messaging.topology.bus import SYSTEM
from harebell.runtime.clock import Clock

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]

WITHIN = 30.0  # seconds
SHORT_HEARTBEAT = "?heartbeat=1"
LONG_HEARTBEAT = "?heartbeat=600"  # only a missing response shows the silence


async def open_through(proxy: TcpProxy) -> AbstractConnection:
    return await connect(proxy.url + SHORT_HEARTBEAT, name="test", properties={})


async def test_consumer_opens_another_session_when_the_first_becomes_silent_at_its_start(
    amqp_url: str,
) -> None:
    handled = asyncio.Event()
    tries = 0

    async def handle(_: Delivery) -> Outcome:
        handled.set()
        return DONE

    async with TcpProxy.open(amqp_url) as proxy:

        async def opened() -> AbstractConnection:
            nonlocal tries
            tries += 1
            connection = await open_through(proxy)
            if tries == 1:
                proxy.silence()
            return connection

        connection = Connection(amqp_url, name="test", properties={})
        channel = await connection.channel()
        await channel.declare_queue("inbox", durable=True)
        await channel.default_exchange.publish(Message(b"hello"), "inbox")
        acknowledger = Acknowledger(Publisher(connection), Clock(fixed_time))
        consumer = Consumer(
            "inbox", opened, lambda: ConcurrentWorker(handle, acknowledger), prefetch=10
        )
        stop = asyncio.Event()
        consuming = asyncio.create_task(consumer.run(stop))
        await asyncio.wait_for(handled.wait(), WITHIN)
        stop.set()
        await asyncio.wait_for(consuming, WITHIN)
        await connection.close()

    assert tries == 2


async def test_declare_raises_when_the_connection_becomes_silent(
    amqp_url: str,
) -> None:
    async with TcpProxy.open(amqp_url) as proxy:
        connection = await open_through(proxy)
        proxy.silence()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(declare(connection, SYSTEM), WITHIN)

        await connection.close()


async def test_open_raises_when_the_connection_becomes_silent_and_then_succeeds(
    amqp_url: str,
) -> None:
    async with TcpProxy.open(amqp_url) as proxy:
        connection = Connection(proxy.url + SHORT_HEARTBEAT, name="test", properties={})
        await (await connection.channel()).close()
        proxy.silence()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(connection.open(), WITHIN)
        await asyncio.wait_for(connection.open(), WITHIN)

        assert connection.is_open
        await connection.close()


async def test_open_replaces_a_channel_without_a_response_in_time(amqp_url: str) -> None:
    async with TcpProxy.open(amqp_url) as proxy:
        connection = Connection(proxy.url + LONG_HEARTBEAT, name="test", properties={})
        await (await connection.channel()).close()
        proxy.silence()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(connection.open(), WITHIN)
        await asyncio.wait_for(connection.open(), WITHIN)

        assert connection.is_open
        await asyncio.wait_for(connection.close(), WITHIN)


async def test_silent_connection_is_closed_in_time(amqp_url: str) -> None:
    async with TcpProxy.open(amqp_url) as proxy:
        connection = Connection(proxy.url + LONG_HEARTBEAT, name="test", properties={})
        await connection.open()
        proxy.silence()

        await asyncio.wait_for(connection.close(), WITHIN)

        assert not connection.is_open


@pytest.mark.long
async def test_topology_functions_raise_in_time_when_the_broker_becomes_silent(
    amqp_url: str,
) -> None:
    for request in (declare, find_missing):
        async with TcpProxy.open(amqp_url) as proxy:
            connection = await connect(proxy.url + LONG_HEARTBEAT, name="test", properties={})
            proxy.silence()

            with pytest.raises(BrokerUnavailable):
                await asyncio.wait_for(request(connection, SYSTEM), WITHIN)

            await asyncio.wait_for(close(connection), WITHIN)


async def test_open_succeeds_after_a_cancelled_open_and_a_loss(
    amqp_url: str,
) -> None:
    async with TcpProxy.open(amqp_url) as proxy:
        connection = Connection(proxy.url + LONG_HEARTBEAT, name="test", properties={})
        await (await connection.channel()).close()
        proxy.silence()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.open(), 0.5)
        proxy.cut()

        await asyncio.wait_for(connection.open(), WITHIN)

        assert connection.is_open
        await connection.close()


async def test_connection_replaces_a_channel_that_the_broker_never_closes(amqp_url: str) -> None:
    """The broker keeps such a channel open while a queue permanently lacks its leader."""
    async with AmqpProxy.open(amqp_url) as proxy:
        connection = Connection(proxy.url + LONG_HEARTBEAT, name="test", properties={})
        for number in (1, 2):
            await connection.open()
            proxy.ignored_channels.add(number)
            await asyncio.sleep(CHANNEL_REPLACE_PAUSE)
            with pytest.raises(BrokerUnavailable):
                await connection.publish("amq.direct", "nowhere", Message(b""), timeout=0.3)

        await asyncio.wait_for(connection.open(), WITHIN)
        with pytest.raises(Unroutable):  # the broker has answered
            await connection.publish("amq.direct", "nowhere", Message(b""))

        await connection.close()
