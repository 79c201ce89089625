"""The messages of accepted commands: how a service reads them, splits them and replies to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from harebell.contract.accepted_commands import ACCEPTED_BATCH, AcceptedCommands
from harebell.contract.amqp_names import message_type
from harebell.contract.errors import Rejected
from harebell.contract.json_codec import decode_model, encode, list_adapter
from harebell.contract.responses import error_response
from harebell.domain.reply_queue import can_reply_to
from harebell.domain.sender import IdentityMode
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.replies import ReplySender, reply

_ACCEPTED_COMMANDS: Final = TypeAdapter(AcceptedCommands)
_ACCEPTED_BATCH: Final = list_adapter(AcceptedCommands)


def read_messages(delivery: Delivery) -> list[AcceptedCommands]:
    """Return the messages of a delivery, which contains one or a batch. Raise `InvalidInput`."""
    body = delivery.trusted_body
    if delivery.message.type == ACCEPTED_BATCH:
        return decode_model(_ACCEPTED_BATCH, body)
    return [decode_model(_ACCEPTED_COMMANDS, body)]


def split_messages(delivery: Delivery) -> Sequence[Delivery]:
    """Return one part for each message of a delivery. The parts have no acknowledgement."""
    whole = delivery.message
    return [
        Delivery(
            replace(
                whole,
                body=encode(message),
                type=message_type("accepted_commands"),
                message_id=f"{whole.message_id}/{index}",
                unacknowledged=None,
            ),
            delivery.queue,
        )
        for index, message in enumerate(read_messages(delivery))
    ]


@dataclass(frozen=True, slots=True)
class CommandReplies:
    """The replies to accepted commands, each to a queue that its tenant may name."""

    replies: ReplySender
    identity: IdentityMode

    def send(self, message: AcceptedCommands, body: bytes) -> None:
        """Send the reply to a message, if it asks for one."""
        if message.reply_to and can_reply_to(message.reply_to, message.tenant, self.identity):
            self.replies.send(
                message.actor or message.tenant,
                reply(
                    message.reply_to,
                    message.correlation_id,
                    body,
                    message_id=f"{message.correlation_id}/response",
                ),
            )

    async def answer(self, delivery: Delivery, error: Rejected) -> None:
        """Send the error of a delivery to each of its messages."""
        for message in read_messages(delivery):
            self.send(message, encode(error_response(error)))
