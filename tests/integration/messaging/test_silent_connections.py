"""Links that fall silent at an awkward moment are lost links, whatever the library makes of it."""

import asyncio

import pytest
from aio_pika import Message
from aio_pika.abc import AbstractConnection
from tests.integration.bootstrap.clocks import told
from tests.rig.tcp_line import DeafLine, Line

from harebell.client.connection import CHANNEL_REPLACE_PAUSE, Connection, close, connect
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.acknowledge import DONE, Acknowledger, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, Consumer
from harebell.messaging.declare import declare, find_missing
from harebell.messaging.publisher import Publisher
from harebell.messaging.topology.bus import SYSTEM
from harebell.runtime.clock import Clock

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]

WITHIN = 30.0  # seconds
QUICK = "?heartbeat=1"
PATIENT = "?heartbeat=600"  # so that silence is noticed only by what waits for an answer


async def open_through(line: Line) -> AbstractConnection:
    return await connect(line.url + QUICK, name="test", properties={})


async def test_a_consumer_whose_session_falls_silent_while_it_opens_goes_on_with_another(
    amqp_url: str,
) -> None:
    handled = asyncio.Event()
    tries = 0

    async def handle(_: Delivery) -> Outcome:
        handled.set()
        return DONE

    async with Line.to(amqp_url) as line:

        async def opened() -> AbstractConnection:
            nonlocal tries
            tries += 1
            connection = await open_through(line)
            if tries == 1:
                line.silence()
            return connection

        link = Connection(amqp_url, name="test", properties={})
        channel = await link.channel()
        await channel.declare_queue("inbox", durable=True)
        await channel.default_exchange.publish(Message(b"hello"), "inbox")
        settler = Acknowledger(Publisher(link), Clock(told))
        consumer = Consumer("inbox", opened, lambda: ConcurrentWorker(handle, settler), prefetch=10)
        stop = asyncio.Event()
        consuming = asyncio.create_task(consumer.run(stop))
        await asyncio.wait_for(handled.wait(), WITHIN)
        stop.set()
        await asyncio.wait_for(consuming, WITHIN)
        await link.close()

    assert tries == 2


async def test_declaring_over_a_link_that_falls_silent_is_a_broker_that_is_away(
    amqp_url: str,
) -> None:
    async with Line.to(amqp_url) as line:
        connection = await open_through(line)
        line.silence()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(declare(connection, SYSTEM), WITHIN)

        await connection.close()


async def test_opening_a_link_that_falls_silent_is_a_broker_that_is_away(amqp_url: str) -> None:
    async with Line.to(amqp_url) as line:
        link = Connection(line.url + QUICK, name="test", properties={})
        await (await link.channel()).close()
        line.silence()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(link.open(), WITHIN)
        await asyncio.wait_for(link.open(), WITHIN)

        assert link.is_open
        await link.close()


async def test_a_link_whose_channel_gets_no_answer_opens_another_in_time(amqp_url: str) -> None:
    async with Line.to(amqp_url) as line:
        link = Connection(line.url + PATIENT, name="test", properties={})
        await (await link.channel()).close()
        line.silence()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(link.open(), WITHIN)
        await asyncio.wait_for(link.open(), WITHIN)

        assert link.is_open
        await asyncio.wait_for(link.close(), WITHIN)


async def test_a_link_that_nobody_answers_any_more_is_closed_in_time(amqp_url: str) -> None:
    async with Line.to(amqp_url) as line:
        link = Connection(line.url + PATIENT, name="test", properties={})
        await link.open()
        line.silence()

        await asyncio.wait_for(link.close(), WITHIN)

        assert not link.is_open


async def test_a_broker_that_no_longer_answers_is_asked_about_its_topology_for_a_while(
    amqp_url: str,
) -> None:
    for ask in (declare, find_missing):
        async with Line.to(amqp_url) as line:
            connection = await connect(line.url + PATIENT, name="test", properties={})
            line.silence()

            with pytest.raises(BrokerUnavailable):
                await asyncio.wait_for(ask(connection, SYSTEM), WITHIN)

            await asyncio.wait_for(close(connection), WITHIN)


async def test_a_link_whose_opening_was_given_up_before_its_connection_was_lost_opens_again(
    amqp_url: str,
) -> None:
    async with Line.to(amqp_url) as line:
        link = Connection(line.url + PATIENT, name="test", properties={})
        await (await link.channel()).close()
        line.silence()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.open(), 0.5)
        line.cut()

        await asyncio.wait_for(link.open(), WITHIN)

        assert link.is_open
        await link.close()


async def test_a_link_leaves_a_channel_that_the_broker_never_closes(amqp_url: str) -> None:
    """As those are that wait for a queue's leader which is gone for good."""
    async with DeafLine.to(amqp_url) as line:
        link = Connection(line.url + PATIENT, name="test", properties={})
        for number in (1, 2):
            await link.open()
            line.deaf.add(number)
            await asyncio.sleep(CHANNEL_REPLACE_PAUSE)
            with pytest.raises(BrokerUnavailable):
                await link.publish("amq.direct", "nowhere", Message(b""), timeout=0.3)

        await asyncio.wait_for(link.open(), WITHIN)
        with pytest.raises(Unroutable):  # so it was confirmed
            await link.publish("amq.direct", "nowhere", Message(b""))

        await link.close()
