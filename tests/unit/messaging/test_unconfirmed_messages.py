"""The number of messages that a publisher has sent and that are not confirmed."""

import asyncio
from typing import Any, cast

from harebell.messaging.publisher import MAX_UNCONFIRMED, OutgoingMessage, Publisher

MESSAGE = OutgoingMessage(
    exchange="harebell.events", routing_key="acme.run.dead", body=b"{}", type="t", message_id="m"
)


class SlowConnection:
    """A connection that confirms no message before it is released."""

    def __init__(self) -> None:
        self.unconfirmed = 0
        self.most_unconfirmed = 0
        self.released = asyncio.Event()

    async def publish(self, *_: Any, **__: Any) -> None:
        self.unconfirmed += 1
        self.most_unconfirmed = max(self.most_unconfirmed, self.unconfirmed)
        await self.released.wait()
        self.unconfirmed -= 1


async def test_publisher_sends_a_limited_number_of_unconfirmed_messages() -> None:
    connection = SlowConnection()
    publisher = Publisher(cast("Any", connection))
    messages = [MESSAGE] * (2 * MAX_UNCONFIRMED)

    publishing = asyncio.create_task(publisher.publish_all(messages))
    for _ in range(10):  # each task has run until it waits
        await asyncio.sleep(0)
    assert connection.unconfirmed == MAX_UNCONFIRMED
    connection.released.set()
    await publishing

    assert connection.most_unconfirmed == MAX_UNCONFIRMED
