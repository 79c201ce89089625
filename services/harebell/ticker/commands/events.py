"""The replies and events of a batch, which the ticker publishes after the commit."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from harebell.contract.events import make_event
from harebell.contract.responses import ScheduleResponse
from harebell.contract.types import instant_text
from harebell.messaging.accepted_messages import CommandReplies
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.ticker.commands.batch import BatchItem, CommandBatch, response_body
from harebell.ticker.events import planning_events, stop_request_messages, unstaged_run_events
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.plan_writer import SaveResult

STATUSES_WITHOUT_EVENT: Final = ("unchanged", "previewed")


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
