"""A reply queue that breaks, blocks or refuses affects only the replies of its own client."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from tests.integration.messaging.inbox import WITHIN

from harebell.connection.amqp import connect
from harebell.contract.amqp_names import DIRECT_REPLY
from harebell.messaging.replies import Replies, reply

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]


@pytest.fixture
async def channel(amqp_url: str) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(amqp_url) as connection:
        yield await connection.channel()


@pytest.fixture
async def replies(amqp_url: str) -> AsyncIterator[Replies]:
    sender = Replies(lambda name: connect(amqp_url, name=name, properties={}))
    yield sender
    await sender.close(within=0)


async def direct_name(channel: AbstractChannel, received: "asyncio.Queue[bytes]") -> str:
    """Return the name of the direct replies of the channel, whose bodies `received` gets."""

    async def receive(message: AbstractIncomingMessage) -> None:
        received.put_nowait(message.body)

    queue = await channel.get_queue(DIRECT_REPLY, ensure=False)
    await queue.consume(receive, no_ack=True)
    inbox = await channel.declare_queue(exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"", reply_to=DIRECT_REPLY), inbox.name)
    message = await inbox.get(no_ack=True)
    assert message is not None
    return message.reply_to or ""


def forged(name: str) -> Sequence[str]:
    """Return names that resemble the direct name of a client."""
    process, key = name.removeprefix(f"{DIRECT_REPLY}.").split(".")
    other_node = base64.b64decode(process).replace(b"reply@", b"reply@9")
    return [
        f"{DIRECT_REPLY}.abc.def",
        f"{DIRECT_REPLY}.{base64.b64encode(b'hello').decode()}.{key}",
        f"{DIRECT_REPLY}.{base64.b64encode(other_node).decode()}.{key}",
        f"{DIRECT_REPLY}.{'A' * 200}",
        f"{DIRECT_REPLY}.%%%",
        f"{DIRECT_REPLY}.",
    ]


@pytest.mark.requirement("P6")
async def test_forged_direct_names_end_only_the_connection_of_their_sender(
    replies: Replies, channel: AbstractChannel
) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()
    name = await direct_name(channel, received)

    for number in range(5):
        for each in forged(name):
            replies.send("acme", reply(each, "c", b"lost", message_id="m"))
        replies.send("umbrella", reply(name, "c", b"%d" % number, message_id="m"))
        async with asyncio.timeout(1):  # the connection of acme opens again after a second
            assert await received.get() == b"%d" % number

    async with asyncio.timeout(WITHIN):
        while received.empty():  # a connection that ends takes the replies after a forged name
            replies.send("acme", reply(name, "c", b"own", message_id="m"))
            await asyncio.sleep(0.2)


@pytest.mark.requirement("P6")
async def test_queue_that_rejects_every_message_delays_no_reply(
    replies: Replies, channel: AbstractChannel
) -> None:
    full = await channel.declare_queue(
        exclusive=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
    )
    received: asyncio.Queue[bytes] = asyncio.Queue()
    name = await direct_name(channel, received)

    for _ in range(500):
        replies.send("acme", reply(full.name, "c", b"refused", message_id="m"))
    replies.send("acme", reply("acme.no-such-queue", "c", b"lost", message_id="m"))
    replies.send("acme", reply(name, "c", b"answer", message_id="m"))

    async with asyncio.timeout(WITHIN):
        assert await received.get() == b"answer"
