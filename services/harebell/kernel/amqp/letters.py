"""The dead letter of a message as it goes to the desk: the gist in headers that people can read."""

from typing import Final

from pamqp.common import FieldValue

from harebell.contract import names
from harebell.contract.codec import encode_all
from harebell.contract.dead import DeadMessage
from harebell.kernel.amqp.publish import OutgoingMessage

_TYPE: Final = names.message_type("message.dead")


def dead_letter_of_message(dead: DeadMessage, *, run: str | None = None) -> OutgoingMessage:
    """`run`: the id of the one run that the message was about."""
    headers: dict[str, FieldValue] = {
        names.DEAD_REASON: dead.reason,
        names.DEAD_QUEUE: dead.queue,
    }
    if run is not None:
        headers[names.DEAD_RUN] = run
    return OutgoingMessage(
        exchange=names.DEAD,
        routing_key=f"message.{dead.queue}",
        body=encode_all([dead]),
        type=_TYPE,
        message_id=dead.message_id or "",
        headers=headers,
    )
