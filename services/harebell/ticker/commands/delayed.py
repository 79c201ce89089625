"""The dead letters of delayed messages that the ticker rejects, which have no sender to answer."""

import base64
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from harebell.contract.amqp_names import delayed_queue_name, exchange_of_due
from harebell.contract.commands import SchedulePut
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.responses import ErrorResponse
from harebell.contract.target import AmqpTarget
from harebell.messaging.dead_letters import dead_letter_of_message
from harebell.messaging.publisher import OutgoingMessage
from harebell.ticker.commands.batch import BatchItem, CommandBatch

MAX_ERROR_LENGTH: Final = 512  # characters of an error in a dead letter


def rejected_messages(batch: CommandBatch, now: datetime) -> Iterator[OutgoingMessage]:
    """Yield the dead letter of each rejected delayed message.

    A repeat of the batch yields the same dead letters, which have the same ids.
    """
    for item in batch.items:
        response = item.response
        if item.message.delayed is not None and isinstance(response, ErrorResponse):
            yield _dead_letter(item, response, now)


def _dead_letter(item: BatchItem, response: ErrorResponse, now: datetime) -> OutgoingMessage:
    """Return the dead letter with the message as its consumers would have received it."""
    command = None if item.context is None else item.context.command
    body, routing_key, message_id, exchange = b"", "", None, ""
    headers: dict[str, Any] = {}
    reason = response.error.reason
    if isinstance(command, SchedulePut) and isinstance(command.target, AmqpTarget):
        message = command.target.amqp
        body, routing_key = message.body() or b"", message.routing_key
        message_id, exchange = message.message_id, exchange_of_due(message.exchange)
        headers = {
            name: value
            for name, value in message.headers.items()
            if isinstance(value, str | int | float)
        }
        reason = f"{reason} The message waited for the exchange {message.exchange!r}."
    dead = DeadMessage(
        queue=delayed_queue_name(exchange),
        tenant=item.message.tenant,
        message_id=message_id,
        routing_key=routing_key,
        reason=response.error.code,
        error=reason[:MAX_ERROR_LENGTH],
        dead_at=now,
        headers=headers,
        body=base64.b64encode(body).decode(),
    )
    return dead_letter_of_message(dead)
