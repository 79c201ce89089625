"""Senders of replies for tests without a broker."""

import asyncio
from contextlib import suppress

from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.publisher import OutgoingMessage, Publisher


class RecordedReplies:
    """A sender that records its replies in a list, such as that of a fake publisher."""

    def __init__(self, sent: list[OutgoingMessage]) -> None:
        self._sent = sent

    def send(self, receiver: str, outgoing: OutgoingMessage) -> None:
        del receiver
        self._sent.append(outgoing)


class PublishedReplies:
    """A sender that publishes each reply once, and loses the reply if the publisher fails."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, receiver: str, outgoing: OutgoingMessage) -> None:
        del receiver
        task = asyncio.create_task(self._publish(outgoing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, outgoing: OutgoingMessage) -> None:
        with suppress(BrokerUnavailable, Unroutable):
            await self._publisher.publish(outgoing)
