"""Answers of the desk, to where they were asked for."""

from collections.abc import Sequence
from typing import Final

import structlog

from harebell.contract import names
from harebell.contract.codec import encode, encode_all
from harebell.contract.errors import Rejected, Unroutable
from harebell.contract.message import Message
from harebell.kernel.amqp.publish import Outgoing, Publisher

OUR_QUEUES: Final = "harebell."  # an answer sent there would pass for a message of ours
_TYPE: Final = names.message_type("answer")

log = structlog.get_logger()


class Answers:
    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def one(self, reply_to: str | None, correlation_id: str | None, said: Message) -> None:
        await self._send(reply_to, correlation_id, encode(said))

    async def several(
        self, reply_to: str | None, correlation_id: str | None, said: Sequence[Message]
    ) -> None:
        """An array in, an array out."""
        await self._send(reply_to, correlation_id, encode_all(said))

    async def _send(self, reply_to: str | None, correlation_id: str | None, body: bytes) -> None:
        """Raises `BrokerUnavailable`; whoever asked may have gone, and that is no fault."""
        if not reply_to or reply_to.startswith(OUR_QUEUES):
            return
        answer = Outgoing(
            exchange="",
            routing_key=reply_to,
            body=body,
            type=_TYPE,
            message_id=correlation_id or "",
            correlation_id=correlation_id,
        )
        try:
            await self._publisher.publish(answer)
        except (Rejected, Unroutable) as error:
            log.info("nobody to answer", error=error.code, reason=error.reason)
