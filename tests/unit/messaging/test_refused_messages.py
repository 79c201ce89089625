"""The reaction of a publisher to a broker that refuses a message of a service."""

import aio_pika
import pytest

from harebell.connection.amqp import PUBLISH_TIMEOUT, Connection
from harebell.contract.errors import BrokerUnavailable, NotAllowed
from harebell.messaging.publisher import OutgoingMessage, Publisher

MESSAGE = OutgoingMessage(
    exchange="harebell.delay", routing_key="001500", body=b"[]", type="t", message_id="m"
)


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
