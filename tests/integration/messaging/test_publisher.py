"""Published means confirmed: anything else is an error that says what it was."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from tests.integration.messaging.inbox import QUEUE, WITHIN, Inbox, open_inbox
from tests.rig.tcp_line import Line

from harebell.client.connection import Connection
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
async def through(inbox: Inbox) -> AsyncIterator[Publisher]:
    """Through the line that a test may break."""
    link = Connection(inbox.line.url, name="test", properties={})
    yield Publisher(link)
    await link.close()


@pytest.mark.requirement("S62")
async def test_what_is_published_is_persistent_and_says_what_it_is(inbox: Inbox) -> None:
    await inbox.publisher.publish(GOOD)

    queue = await inbox.channel.get_queue(QUEUE)
    message = await queue.get(no_ack=True)
    assert message is not None
    assert (message.body, message.type, message.message_id) == (b"{}", GOOD.type, "m-1")
    assert (message.app_id, message.content_type) == ("harebell", "application/json")
    assert message.delivery_mode == 2
    assert message.headers["n"] == 1


async def test_what_no_queue_takes_is_an_error(inbox: Inbox) -> None:
    with pytest.raises(Unroutable) as failed:
        await inbox.publisher.publish(NOWHERE)

    assert failed.value.code == "unroutable"
    assert "nobody" in failed.value.reason


async def test_what_goes_to_no_exchange_is_an_error_and_the_next_publish_succeeds(
    inbox: Inbox,
) -> None:
    with pytest.raises(Unroutable) as failed:
        await inbox.publisher.publish(BROKEN)
    await inbox.publisher.publish(GOOD)

    assert failed.value.code == "no_exchange"
    assert await inbox.ready() == 1


async def test_of_many_each_is_told_apart(inbox: Inbox) -> None:
    results = await inbox.publisher.publish_each([GOOD, NOWHERE, replace(GOOD, message_id="m-4")])

    assert [type(result) for result in results] == [type(None), Unroutable, type(None)]
    assert await inbox.ready() == 2


async def test_facts_that_cannot_be_written_down_are_let_go_and_the_next_are_told(
    inbox: Inbox,
) -> None:
    queue = await inbox.channel.declare_queue(exclusive=True)
    await queue.bind(EVENTS, "acme.#")
    at = datetime(2026, 11, 20, 14, tzinfo=UTC)

    for data in ({"key": 2**70}, {"key": "a"}):
        told = make_event("acme", "schedule.paused", data, id_="x", subject="a", at=at)
        await publish_events(inbox.publisher, [OutgoingEvent("acme", "schedule.paused", told)])

    message = await queue.get(timeout=WITHIN)
    assert [each["data"] for each in orjson.loads(message.body)] == [{"key": "a"}]


async def test_the_first_failure_of_many_is_raised_when_all_are_through(inbox: Inbox) -> None:
    with pytest.raises(Unroutable):
        await inbox.publisher.publish_all([NOWHERE, *[GOOD] * 20])

    assert await inbox.ready() == 20


async def test_as_many_as_may_be_in_flight_go_out_in_order(inbox: Inbox) -> None:
    bodies = [f"{number:03}" for number in range(MAX_UNCONFIRMED)]

    await inbox.put(*bodies)

    assert [body async for body in inbox.take(MAX_UNCONFIRMED)] == bodies


async def test_more_than_may_be_in_flight_are_all_published(inbox: Inbox) -> None:
    bodies = [f"{number:03}" for number in range(MAX_UNCONFIRMED + 100)]

    await inbox.put(*bodies)

    assert sorted([body async for body in inbox.take(len(bodies))]) == bodies


async def test_a_publish_over_a_lost_connection_goes_out_over_another(
    inbox: Inbox, through: Publisher
) -> None:
    await through.publish(GOOD)

    inbox.line.cut()
    with suppress(BrokerUnavailable):
        await through.publish(GOOD)  # the cut may be noticed only by this one
    await through.publish(GOOD)

    assert await inbox.ready() >= 2


async def test_a_broker_that_does_not_confirm_hangs_nobody(
    inbox: Inbox, through: Publisher
) -> None:
    await through.publish(GOOD)
    inbox.line.silence()

    async with asyncio.timeout(WITHIN):
        with pytest.raises(BrokerUnavailable):
            await through.publish(GOOD, within=0.2)


async def test_a_broker_that_is_away_hangs_nobody(amqp_url: str) -> None:
    async with Line.to(amqp_url) as line:
        url = line.url
    link = Connection(url, name="test", properties={})

    with pytest.raises(BrokerUnavailable):
        await Publisher(link).publish(GOOD, within=2)

    await link.close()


async def test_a_link_that_was_closed_is_closed_for_good(inbox: Inbox, through: Publisher) -> None:
    await through.publish(GOOD)
    link = Connection(inbox.line.url, name="test", properties={})
    await link.open()
    await link.close()

    with pytest.raises(BrokerUnavailable):
        await Publisher(link).publish(GOOD)
