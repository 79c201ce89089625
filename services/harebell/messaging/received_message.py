"""A received message: the body and the properties that services read, and its acknowledgement."""

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, cast

from aiormq.abc import DeliveredMessage

from harebell.messaging.received_properties import LazyHeaders, ReceivedProperties
from harebell.runtime.clock import monotonic


class AckChannel(Protocol):
    """The channel of a consumer, as far as acknowledgements need it."""

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> Awaitable[None]: ...  # noqa: FBT001, FBT002  # the library's signature

    def basic_reject(self, delivery_tag: int, *, requeue: bool) -> Awaitable[None]: ...


@dataclass(slots=True)
class UnacknowledgedTags:
    """The delivery tags of one channel that no acknowledgement contains yet.

    One `basic.ack` with `multiple` acknowledges every earlier tag of its channel too.
    """

    channel: AckChannel
    _tags: dict[int, None] = field(default_factory=dict)  # in the order of the deliveries

    def add(self, tag: int) -> None:
        self._tags[tag] = None

    def take(self, tags: Iterable[int]) -> tuple[int | None, list[int]]:
        """Remove the tags, and return one tag with all its predecessors and the separate tags.

        No tag of a delivery that is still in progress is before the first one.
        """
        done = sorted(set(tags) & self._tags.keys())
        count = 0
        for tag, oldest in zip(done, self._tags, strict=False):
            if tag != oldest:
                break
            count += 1
        for tag in done:
            del self._tags[tag]
        return (done[count - 1] if count else None), done[count:]

    async def acknowledge(self, tags: Iterable[int]) -> None:
        """Acknowledge the tags with as few methods as possible."""
        up_to, separate = self.take(tags)
        if up_to is not None:
            await self.channel.basic_ack(up_to, multiple=True)
        for tag in separate:
            await self.channel.basic_ack(tag)

    async def reject(self, tag: int) -> None:
        """Reject a delivery, which the broker then moves to the dead letter exchange."""
        self._tags.pop(tag, None)
        await self.channel.basic_reject(tag, requeue=False)


@dataclass(slots=True, kw_only=True)
class ReceivedMessage:
    """A message of a consumer. Not frozen, because each message of a user creates one.

    `unacknowledged` is null for a part of a message, which has no acknowledgement of its own.
    """

    body: bytes
    exchange: str = ""
    routing_key: str = ""
    type: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    user_id: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: ReceivedProperties | None = None  # all of them; null for a part of a message
    is_redelivered: bool = False
    tag: int = 0
    unacknowledged: UnacknowledgedTags | None = None
    received_at: float = field(default_factory=monotonic)  # seconds

    @classmethod
    def of(cls, delivered: DeliveredMessage, unacknowledged: UnacknowledgedTags) -> Self:
        """Return the message of a delivery of the client library, with its patch."""
        properties = cast("ReceivedProperties", delivered.header.properties)
        return cls(
            body=delivered.body,
            exchange=delivered.exchange or "",
            routing_key=delivered.routing_key or "",
            type=properties.message_type,
            message_id=properties.message_id,
            correlation_id=properties.correlation_id,
            reply_to=properties.reply_to,
            user_id=properties.user_id,
            headers=LazyHeaders(properties),
            properties=properties,
            is_redelivered=bool(delivered.redelivered),
            tag=delivered.delivery_tag or 0,
            unacknowledged=unacknowledged,
        )
