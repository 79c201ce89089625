"""The replies, events and dead letters of a batch, which the ticker publishes after the commit.

A dead letter is a rejected delayed message, which has no sender to answer.
"""

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from harebell.contract.amqp_names import delayed_queue_name, exchange_of_due
from harebell.contract.commands import SchedulePut
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.events import make_event
from harebell.contract.responses import ErrorResponse, ScheduleResponse
from harebell.contract.target import AmqpTarget
from harebell.contract.types import instant_text
from harebell.messaging.accepted_messages import CommandReplies
from harebell.messaging.dead_letters import dead_letter_of_message
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.ticker.commands.batch import BatchItem, CommandBatch, response_body
from harebell.ticker.events import planning_events, stop_request_messages, unstaged_run_events
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.plan_writer import SaveResult

STATUSES_WITHOUT_EVENT: Final = ("unchanged", "previewed")
MAX_ERROR_LENGTH: Final = 512  # characters of an error in a dead letter


async def publish_batch_events(
    publisher: Publisher,
    batch: CommandBatch,
    unit: UnitOfWork,
    *,
    replies: CommandReplies,
    saved: SaveResult,
    now: datetime,
) -> None:
    """Send the replies of the batch, then publish its stop requests and its events."""
    send_replies(replies, batch)
    await publisher.publish_each(stop_request_messages(unit))
    events = [
        *_schedule_events(batch.items, now),
        *unstaged_run_events(unit, saved, now),
        *planning_events(saved, now),
    ]
    await publish_events(publisher, events)


def send_replies(replies: CommandReplies, batch: CommandBatch) -> None:
    """Send the reply of each message."""
    for message, items in batch.replies:
        replies.send(message, response_body(message, items))


def _schedule_events(items: Sequence[BatchItem], now: datetime) -> Iterator[OutgoingEvent]:
    for item in items:
        response = item.response
        if not isinstance(response, ScheduleResponse):
            continue
        if response.status in STATUSES_WITHOUT_EVENT:
            continue
        verb = f"schedule.{response.status}"
        data = {  # the fields of `ScheduleEventData`
            "schedule_id": response.id,
            "key": response.key,
            "version": response.version,
            "state": response.state,
            "actor": item.message.actor,
            "next_at": instant_text(response.next_at[0]) if response.next_at else None,
        }
        id_ = f"{response.id}/{item.message.accepted_at.isoformat()}/{item.accepted.index}"
        tenant, subject = item.message.tenant, response.key or str(response.id)
        event = make_event(tenant, verb, data, id_=id_, subject=subject, at=now)
        yield OutgoingEvent(tenant, verb, event)


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
