"""Replies to commands and queries, through the default exchange to the queue in `reply_to`."""

from typing import Final

import structlog

from harebell.contract.amqp_names import DIRECT_REPLY, message_type
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.publisher import OutgoingMessage, Publisher

DEFAULT_EXCHANGE: Final = ""

log = structlog.get_logger()


def reply(
    reply_to: str, correlation_id: str | None, body: bytes, *, message_id: str
) -> OutgoingMessage:
    """Return the message that carries the response in `body` to the queue `reply_to`."""
    return OutgoingMessage(
        exchange=DEFAULT_EXCHANGE,
        routing_key=reply_to,
        body=body,
        type=message_type("response"),
        message_id=message_id,
        correlation_id=correlation_id,
    )


async def send_reply(publisher: Publisher, outgoing: OutgoingMessage) -> None:
    """Publish the reply, and ignore a queue that no longer exists.

    Raise `BrokerUnavailable` if the broker does not confirm the reply.
    """
    try:
        await publisher.publish(outgoing)
    except (BrokerUnavailable, Unroutable) as error:
        if error.code == BrokerUnavailable.code:
            raise
        if outgoing.routing_key.startswith(DIRECT_REPLY):
            return  # RabbitMQ returns a mandatory message to a direct reply-to even if delivered
        log.info("reply not delivered", error=error.code, reason=error.reason)
