"""AMQP messages with all properties, as a consumer without Harebell code receives them."""

from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from tests.acceptance.stack import Tenant, run_id
from tests.rig.polling import until

from harebell.contract.errors import CommandRejected

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

EXCHANGE, REPLIES = "acme.mail", "acme.mail.replies"
TEXTS = {
    "type": "mail.send.v2",
    "reply_to": REPLIES,
    "app_id": "billing",
    "content_type": "application/vnd.acme.mail+json",
    "content_encoding": "utf-8",
}
HEADERS = {"x-delay": 60_000, "x-request-id": "r-7", "x-retries": 3, "region": "eu"}
MESSAGE = {
    "exchange": EXCHANGE,
    "routing_key": "new",
    "json": {"to": "a@acme.example"},
    "headers": {**HEADERS, "run": {"run": "id"}},
    "correlation_id": {"run": "id"},
    "priority": 9,
    "expiration": "10m",
    **TEXTS,
}


@pytest.fixture
async def channel(tenant: Tenant) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(tenant.stack.amqp_url) as connection:
        yield await connection.channel()


@pytest.fixture
async def inbox(channel: AbstractChannel) -> AbstractQueue:
    exchange = await channel.declare_exchange(EXCHANGE, "topic", auto_delete=True)
    queue = await channel.declare_queue(exclusive=True, arguments={"x-max-priority": 10})
    await queue.bind(exchange, "#")
    return queue


async def next_message(queue: AbstractQueue) -> AbstractIncomingMessage:
    async def receive() -> list[AbstractIncomingMessage]:
        message = await queue.get(no_ack=True, fail=False)
        return [] if message is None else [message]

    (message,) = await until(receive, what="the message")
    return message


@pytest.mark.requirement("S20")
async def test_consumer_receives_every_property_and_replies(
    tenant: Tenant, channel: AbstractChannel, inbox: AbstractQueue
) -> None:
    replies = await channel.declare_queue(REPLIES, exclusive=True)
    await tenant.put("mail", {"after": "5s"}, {"amqp": MESSAGE})  # waits in a delay queue

    message = await next_message(inbox)
    # The consumer answers as any consumer of a request does.
    await channel.default_exchange.publish(
        aio_pika.Message(b"sent", correlation_id=message.correlation_id), str(message.reply_to)
    )

    (run,) = await tenant.until_runs(1, "succeeded")
    id_ = run_id(str(run["schedule_id"]), run["scheduled_for"])
    assert {name: getattr(message, name) for name in TEXTS} == TEXTS
    assert {name: message.headers[name] for name in HEADERS} == HEADERS
    assert message.correlation_id == message.headers["run"] == message.message_id == id_
    assert (message.priority, message.expiration) == (9, 600.0)
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    reply = await next_message(replies)
    assert (reply.body, reply.correlation_id) == (b"sent", id_)


@pytest.mark.requirement("S20")
async def test_higher_priority_overtakes_and_an_expired_message_is_dropped(
    tenant: Tenant, inbox: AbstractQueue
) -> None:
    plain = {"exchange": EXCHANGE, "routing_key": "new"}
    for key, fields in (
        ("expired", {"expiration": "1ms"}),
        ("low", {"priority": 1}),
        ("high", {"priority": 8}),
    ):
        await tenant.put(key, {"now": True}, {"amqp": {**plain, "text": key, **fields}})
        # Each message is in the queue before the next one.
        await tenant.until_runs(("expired", "low", "high").index(key) + 1, "succeeded")

    received = [(await next_message(inbox)).body for _ in range(2)]

    assert received == [b"high", b"low"]
    assert await inbox.get(no_ack=True, fail=False) is None


@pytest.mark.requirement("S20")
@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"priority": 256}, "target.amqp.priority", "invalid"),
        ({"headers": {"CC": "a"}}, "target.amqp.headers", "reserved_header"),
        ({"headers": {"x-death": 1}}, "target.amqp.headers", "reserved_header"),
        ({"reply_to": "amq.rabbitmq.reply-to"}, "target.amqp.reply_to", "reserved_queue"),
        ({"user_id": "guest"}, "target.amqp.user_id", "unknown_field"),
    ],
)
async def test_guarded_property_is_rejected_with_its_field(
    tenant: Tenant, fields: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(CommandRejected) as refused:
        await tenant.put("bad", {"now": True}, {"amqp": {"exchange": EXCHANGE, **fields}})

    assert (refused.value.field, refused.value.code) == (field, code)
