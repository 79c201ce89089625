"""Properties of messages may have any encoding that AMQP permits."""

import asyncio
import subprocess

import pytest
from tests.integration.bootstrap.clocks import fixed_time

from harebell.client.connection import Connection, connect
from harebell.messaging.acknowledge import DONE, Acknowledger, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, Consumer
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock

pytestmark = pytest.mark.broker

WITHIN = 20.0  # seconds


async def test_consumer_handles_a_message_whose_property_is_not_utf8(amqp_url: str) -> None:
    connection = await connect(amqp_url, name="test", properties={})
    channel = await connection.channel()
    await channel.declare_queue("inbox", durable=True)
    for content_type in (b"\xff\xfe", b"text/plain"):
        _publish(amqp_url, content_type)
    handled: list[Delivery] = []
    stop = asyncio.Event()

    async def handle(delivery: Delivery) -> Outcome:
        handled.append(delivery)
        if len(handled) == 2:
            stop.set()
        return DONE

    publishing = Connection(amqp_url, name="test", properties={})
    acknowledger = Acknowledger(Publisher(publishing), Clock(fixed_time))
    consumer = Consumer(
        "inbox",
        lambda: connect(amqp_url, name="consumes", properties={}),
        lambda: ConcurrentWorker(handle, acknowledger),
        prefetch=10,
    )
    await asyncio.wait_for(consumer.run(stop), WITHIN)
    left = await channel.declare_queue("inbox", passive=True)
    await connection.close()
    await publishing.close()

    assert [delivery.body for delivery in handled] == [b"hello", b"hello"]
    assert left.declaration_result.message_count == 0


def _publish(amqp_url: str, content_type: bytes) -> None:
    command = ["amqp-publish", "--url", amqp_url, "--routing-key", "inbox", "--body", "hello"]
    subprocess.run(  # noqa: S603  # constant arguments
        [*command, "--content-type", content_type], check=True, timeout=WITHIN
    )
