"""Answers, to where they were asked for: through the default exchange, by the name of the queue."""

from typing import Final

import structlog

from harebell.contract.amqp_names import DIRECT_REPLY, message_type
from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging.publisher import OutgoingMessage, Publisher

DEFAULT_EXCHANGE: Final = ""
OWN_QUEUE_PREFIX: Final = "harebell."  # an answer sent there would pass for a message of ours

log = structlog.get_logger()


def reply(reply_to: str, correlation_id: str | None, body: bytes, *, name: str) -> OutgoingMessage:
    return OutgoingMessage(
        exchange=DEFAULT_EXCHANGE,
        routing_key=reply_to,
        body=body,
        type=message_type("response"),
        message_id=name,
        correlation_id=correlation_id,
    )


def can_reply_to(reply_to: str | None) -> bool:
    return bool(reply_to) and not str(reply_to).startswith(OWN_QUEUE_PREFIX)


async def send_reply(publisher: Publisher, outgoing: OutgoingMessage) -> None:
    """Raises `BrokerUnavailable`. Whoever asked may have gone: that is no fault."""
    try:
        await publisher.publish(outgoing)
    except (BrokerUnavailable, Unroutable) as error:
        if error.code == BrokerUnavailable.code:
            raise
        if outgoing.routing_key.startswith(DIRECT_REPLY):
            return  # the broker returns what is mandatory there even when it delivers it
        log.info("nobody to answer", error=error.code, reason=error.reason)
