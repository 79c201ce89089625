"""Dead letters of messages that no service can process."""

from typing import Final

from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.json_codec import encode_all
from harebell.messaging.publisher import OutgoingMessage

_TYPE: Final = amqp_names.message_type("message.dead")


def dead_letter_of_message(dead: DeadMessage, *, run: str | None = None) -> OutgoingMessage:
    """Return the dead letter, with the reason and the queue in headers for the management UI.

    `run` is the id of the run if the message was about one run only.
    """
    headers: dict[str, FieldValue] = {
        amqp_names.DEAD_REASON: dead.reason,
        amqp_names.DEAD_QUEUE: dead.queue,
    }
    if run is not None:
        headers[amqp_names.DEAD_RUN] = run
    return OutgoingMessage(
        exchange=amqp_names.DEAD,
        routing_key=f"message.{dead.queue}",
        body=encode_all([dead]),
        type=_TYPE,
        message_id=dead.message_id or "",
        headers=headers,
    )
