"""What a service makes of a broker that refuses its own messages."""

import aio_pika
import pytest

from harebell.client.connection import PUBLISH_TIMEOUT, Connection
from harebell.contract.errors import BrokerUnavailable, NotAllowed, Unroutable
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.replies import reply, send_reply

MESSAGE = OutgoingMessage(
    exchange="harebell.delay", routing_key="1500", body=b"[]", type="t", message_id="m"
)
ANSWER = reply("somebody", "c", b"{}", message_id="m")


class RefusingLink(Connection):
    def __init__(self, refusal: Exception) -> None:
        super().__init__("amqp://nowhere", name="test", properties={})
        self._refusal = refusal

    async def publish(
        self,
        exchange: str,  # noqa: ARG002
        routing_key: str,  # noqa: ARG002
        message: aio_pika.Message,  # noqa: ARG002
        *,
        timeout: float = PUBLISH_TIMEOUT,  # noqa: ASYNC109  # noqa: ARG002, ASYNC109
    ) -> None:
        raise self._refusal


async def test_a_missing_permission_is_waited_for_and_never_the_messages_fault() -> None:
    publisher = Publisher(RefusingLink(NotAllowed("may not publish")))

    with pytest.raises(BrokerUnavailable) as told:
        await publisher.publish(MESSAGE)

    assert told.value.code == "not_allowed"


@pytest.mark.parametrize("refusal", [NotAllowed("may not"), Unroutable("nobody")])
async def test_an_answer_that_nobody_may_have_is_let_go(refusal: Exception) -> None:
    await send_reply(Publisher(RefusingLink(refusal)), ANSWER)


async def test_an_answer_waits_for_a_broker_that_is_away() -> None:
    with pytest.raises(BrokerUnavailable):
        await send_reply(Publisher(RefusingLink(BrokerUnavailable("gone"))), ANSWER)
