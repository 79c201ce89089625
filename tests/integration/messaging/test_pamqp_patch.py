"""Properties of messages may have any value that AMQP permits."""

import asyncio
import struct

import pytest
from tests.integration.messaging.inbox import QUEUE, open_inbox
from tests.rig.amqp_wire import Wire, long_text, short_text

from harebell.messaging.acknowledge import DONE, Acknowledger, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, Worker

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]

WITHIN = 20.0  # seconds
CONTENT_TYPE, HEADERS, TIMESTAMP = 1 << 15, 1 << 13, 1 << 6
MICROSECONDS = struct.pack(">Q", 1_795_738_538_000_000)
DEEP = b"F" + long_text(b"")
for _ in range(5_000):
    DEEP = b"F" + long_text(short_text(b"n") + DEEP)
LISTS = {
    b"text": struct.pack(">H", CONTENT_TYPE) + short_text(b"\xff\xfe"),
    b"time": struct.pack(">H", TIMESTAMP) + MICROSECONDS,
    b"time of a header": struct.pack(">H", HEADERS) + long_text(b"\x01aT" + MICROSECONDS),
    b"name": struct.pack(">H", HEADERS) + long_text(b"\x01\xfft\x01"),
    b"nesting": struct.pack(">H", HEADERS) + long_text(b"\x01a" + DEEP),
    b"nothing": b"\x00\x00",
}


async def test_consumer_handles_a_message_with_properties_that_python_cannot_represent(
    amqp_url: str,
) -> None:
    handled: dict[bytes, Delivery] = {}

    async def handle(delivery: Delivery) -> Outcome:
        handled[delivery.body] = delivery
        inbox.changed.set()
        return DONE

    def worker(acknowledger: Acknowledger) -> Worker:
        return ConcurrentWorker(handle, acknowledger)

    async with open_inbox(amqp_url) as inbox, inbox.consumed_by(worker):
        async with asyncio.timeout(WITHIN), Wire.open(amqp_url) as wire:
            for body, list_ in LISTS.items():
                await wire.publish("", QUEUE.encode(), list_, body)
        await inbox.until(lambda: handled.keys() == LISTS.keys())
        deliveries = [each.message for each in handled.values()]

        assert await inbox.ready() == 0
    assert not any(each.is_redelivered for each in deliveries)
    assert dict(handled[b"time of a header"].message.headers) == {"a": 1_795_738_538_000_000}
    assert dict(handled[b"name"].message.headers) == {r"\xff": True}
