"""The dead letter of a message with broken properties, and dead letters that cannot be stored."""

import asyncio
import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest
from tests.fakes.publisher import FakePublisher

from harebell.messaging.acknowledge import DONE, Acknowledger, DeadLettered, Delivery, Outcome
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.received_message import ReceivedMessage, UnacknowledgedTags
from harebell.messaging.received_properties import LazyHeaders, ReceivedProperties, Undecodable
from harebell.messaging.topology.bus import DEAD_LETTERS, INTAKE

BROKEN = b"\x20\x00\x00\x00\x00\x05\x01aQ12"  # a header of an unknown type
DEAD = DeadLettered("undecodable", "The headers contain a value of the unknown type 0x51.")


class RecordingChannel:
    """A channel that keeps the methods of acknowledgements."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.rejected: list[int] = []

    async def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002  # the library's signature
        self.acknowledged.append(delivery_tag)

    async def basic_reject(self, delivery_tag: int, *, requeue: bool) -> None:
        assert not requeue
        self.rejected.append(delivery_tag)


class FixedClock:
    """A clock that stands."""

    def now(self) -> datetime:
        return datetime(2026, 11, 27, tzinfo=UTC)


def deliveries(channel: RecordingChannel, queue: str, lists: Iterable[bytes]) -> list[Delivery]:
    tags = UnacknowledgedTags(channel)
    found = []
    for tag, raw in enumerate(lists, 1):
        properties = ReceivedProperties(raw)
        message = ReceivedMessage(
            body=b"{}",
            routing_key="acme.schedule.put",
            properties=properties,
            headers=LazyHeaders(properties),
            tag=tag,
            unacknowledged=tags,
        )
        tags.add(tag)
        found.append(Delivery(message, queue))
    return found


def acknowledge(
    queue: str, lists: Iterable[bytes], outcomes: Sequence[Outcome]
) -> tuple[RecordingChannel, list[OutgoingMessage]]:
    channel, publisher = RecordingChannel(), FakePublisher()
    acknowledger = Acknowledger(publisher, cast("Any", FixedClock()))
    asyncio.run(acknowledger.acknowledge(deliveries(channel, queue, lists), outcomes))
    return channel, publisher.published


def test_dead_letter_of_undecodable_headers_has_all_properties_as_bytes() -> None:
    channel, [outgoing] = acknowledge(INTAKE.name, [BROKEN], [DEAD])

    [dead] = orjson.loads(outgoing.body)
    assert base64.b64decode(dead["raw_properties"]) == BROKEN
    assert dead["reason"] == "undecodable"
    assert dead["headers"] == {}
    assert channel.acknowledged == [1]


def test_dead_letter_of_decodable_headers_has_the_headers_alone() -> None:
    text = b"\x20\x00\x00\x00\x00\x08\x01aS\x00\x00\x00\x01b"
    _, [outgoing] = acknowledge(INTAKE.name, [text], [DEAD])

    [dead] = orjson.loads(outgoing.body)
    assert dead["headers"] == {"a": "b"}
    assert "raw_properties" not in dead


def test_dead_letter_that_cannot_be_stored_is_rejected_and_not_published_again() -> None:
    channel, published = acknowledge(
        DEAD_LETTERS.name, [b"\x00\x00"] * 3, [DONE, DeadLettered("not_storable", "no"), DONE]
    )

    assert not published
    assert channel.rejected == [2]
    assert channel.acknowledged == [1, 3]


def test_headers_of_a_broken_list_of_properties_are_undecodable() -> None:
    [delivery] = deliveries(RecordingChannel(), INTAKE.name, [BROKEN])

    with pytest.raises(Undecodable):
        delivery.message.headers.get("a")
