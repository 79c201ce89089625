"""The reaction of a publisher to a broker that refuses a message of a service."""

import aio_pika
import pytest

from harebell.client.connection import PUBLISH_TIMEOUT, Connection
from harebell.contract.errors import BrokerUnavailable, NotAllowed, Unroutable
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.replies import reply, send_reply

MESSAGE = OutgoingMessage(
    exchange="harebell.delay", routing_key="001500", body=b"[]", type="t", message_id="m"
)
REPLY = reply("client", "c", b"{}", message_id="m")


class RefusingConnection(Connection):
    def __init__(self, refusal: Exception) -> None:
        super().__init__("amqp://nowhere", name="test", properties={})
        self._refusal = refusal

    async def publish(
        self,
        exchange: str,  # noqa: ARG002  # every message is refused
        routing_key: str,  # noqa: ARG002  # every message is refused
        message: aio_pika.Message,  # noqa: ARG002  # every message is refused
        *,
        timeout: float = PUBLISH_TIMEOUT,  # noqa: ARG002, ASYNC109  # the base class has it
    ) -> None:
        raise self._refusal


async def test_publish_raises_broker_unavailable_when_a_permission_is_missing() -> None:
    publisher = Publisher(RefusingConnection(NotAllowed("The user must not publish.")))

    with pytest.raises(BrokerUnavailable) as caught:
        await publisher.publish(MESSAGE)

    assert caught.value.code == "not_allowed"


@pytest.mark.parametrize(
    "refusal", [NotAllowed("The user must not publish."), Unroutable("No queue takes it.")]
)
async def test_send_reply_ignores_a_reply_that_cannot_be_delivered(refusal: Exception) -> None:
    await send_reply(Publisher(RefusingConnection(refusal)), REPLY)


async def test_send_reply_raises_when_the_broker_is_unavailable() -> None:
    with pytest.raises(BrokerUnavailable):
        await send_reply(
            Publisher(RefusingConnection(BrokerUnavailable("The broker is gone."))), REPLY
        )
