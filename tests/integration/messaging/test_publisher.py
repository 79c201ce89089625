"""A publish returns after the confirm, and every other result is an error with its reason."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from tests.integration.messaging.inbox import QUEUE, WITHIN, Inbox, open_inbox
from tests.rig.tcp_proxy import TcpProxy

from harebell.connection.amqp import Connection
from harebell.contract.amqp_names import EVENTS
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.contract.events import make_event
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import MAX_UNCONFIRMED, OutgoingMessage, Publisher

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]

GOOD = OutgoingMessage(
    exchange="",
    routing_key=QUEUE,
    body=b"{}",
    type="harebell.test.v1",
    message_id="m-1",
    headers={"n": 1},
)
BROKEN = OutgoingMessage(
    exchange="no.such.exchange", routing_key="x", body=b"{}", type="test", message_id="m-2"
)
NOWHERE = OutgoingMessage(
    exchange="harebell.changes", routing_key="nobody", body=b"{}", type="test", message_id="m-3"
)


@pytest.fixture
async def inbox(amqp_url: str) -> AsyncIterator[Inbox]:
    async with open_inbox(amqp_url) as opened:
        yield opened


@pytest.fixture
async def broken_publisher(inbox: Inbox) -> AsyncIterator[Publisher]:
    """Yield a publisher whose connection a test can break."""
    connection = Connection(inbox.proxy.url, name="test", properties={})
    yield Publisher(connection)
    await connection.close()


@pytest.mark.requirement("S62")
async def test_published_message_is_persistent_and_has_its_properties(inbox: Inbox) -> None:
    await inbox.publisher.publish(GOOD)

    queue = await inbox.channel.get_queue(QUEUE)
    message = await queue.get(no_ack=True)
    assert message is not None
    assert (message.body, message.type, message.message_id) == (b"{}", GOOD.type, "m-1")
    assert (message.app_id, message.content_type) == ("harebell", "application/json")
    assert message.delivery_mode == 2
    assert message.headers["n"] == 1


async def test_publish_raises_when_no_queue_takes_the_message(inbox: Inbox) -> None:
    with pytest.raises(Unroutable) as failed:
        await inbox.publisher.publish(NOWHERE)

    assert failed.value.code == "unroutable"
    assert "nobody" in failed.value.reason


async def test_publish_raises_when_the_exchange_is_missing_and_the_next_publish_succeeds(
    inbox: Inbox,
) -> None:
    with pytest.raises(Unroutable) as failed:
        await inbox.publisher.publish(BROKEN)
    await inbox.publisher.publish(GOOD)

    assert failed.value.code == "no_exchange"
    assert await inbox.ready() == 1


async def test_publish_each_returns_the_result_of_each_message(inbox: Inbox) -> None:
    results = await inbox.publisher.publish_each([GOOD, NOWHERE, replace(GOOD, message_id="m-4")])

    assert [type(result) for result in results] == [type(None), Unroutable, type(None)]
    assert await inbox.ready() == 2


async def test_publish_events_drops_an_event_that_json_cannot_encode(
    inbox: Inbox,
) -> None:
    queue = await inbox.channel.declare_queue(exclusive=True)
    await queue.bind(EVENTS, "acme.#")
    at = datetime(2026, 11, 20, 14, tzinfo=UTC)

    for data in ({"key": 2**70}, {"key": "a"}):
        event = make_event("acme", "schedule.paused", data, id_="x", subject="a", at=at)
        await publish_events(inbox.publisher, [OutgoingEvent("acme", "schedule.paused", event)])

    message = await queue.get(timeout=WITHIN)
    assert [each["data"] for each in orjson.loads(message.body)] == [{"key": "a"}]


async def test_publish_all_raises_the_first_error_after_the_last_result(inbox: Inbox) -> None:
    with pytest.raises(Unroutable):
        await inbox.publisher.publish_all([NOWHERE, *[GOOD] * 20])

    assert await inbox.ready() == 20


async def test_publish_all_keeps_the_order_up_to_the_maximum_of_unconfirmed_messages(
    inbox: Inbox,
) -> None:
    bodies = [f"{number:03}" for number in range(MAX_UNCONFIRMED)]

    await inbox.put(*bodies)

    assert [body async for body in inbox.take(MAX_UNCONFIRMED)] == bodies


async def test_publish_all_publishes_more_than_the_maximum_of_unconfirmed_messages(
    inbox: Inbox,
) -> None:
    bodies = [f"{number:03}" for number in range(MAX_UNCONFIRMED + 100)]

    await inbox.put(*bodies)

    assert sorted([body async for body in inbox.take(len(bodies))]) == bodies


async def test_publish_uses_a_new_connection_after_a_loss(
    inbox: Inbox, broken_publisher: Publisher
) -> None:
    await broken_publisher.publish(GOOD)

    inbox.proxy.cut()
    with suppress(BrokerUnavailable):
        await broken_publisher.publish(GOOD)  # this publish may be the first that notices the loss
    await broken_publisher.publish(GOOD)

    assert await inbox.ready() >= 2


async def test_publish_raises_in_time_when_the_broker_does_not_confirm(
    inbox: Inbox, broken_publisher: Publisher
) -> None:
    await broken_publisher.publish(GOOD)
    inbox.proxy.silence()

    async with asyncio.timeout(WITHIN):
        with pytest.raises(BrokerUnavailable):
            await broken_publisher.publish(GOOD, within=0.2)


async def test_publish_raises_in_time_when_the_broker_is_unavailable(amqp_url: str) -> None:
    async with TcpProxy.open(amqp_url) as proxy:
        url = proxy.url
    connection = Connection(url, name="test", properties={})

    with pytest.raises(BrokerUnavailable):
        await Publisher(connection).publish(GOOD, within=2)

    await connection.close()


async def test_publish_raises_when_its_connection_is_closed(
    inbox: Inbox, broken_publisher: Publisher
) -> None:
    await broken_publisher.publish(GOOD)
    connection = Connection(inbox.proxy.url, name="test", properties={})
    await connection.open()
    await connection.close()

    with pytest.raises(BrokerUnavailable):
        await Publisher(connection).publish(GOOD)
