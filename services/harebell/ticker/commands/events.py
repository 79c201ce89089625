"""TODO: describe this module."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from harebell.contract.events import make_event
from harebell.contract.responses import ScheduleResponse
from harebell.contract.types import instant_text
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.ticker.commands.batch import BatchItem
from harebell.ticker.events import planning_events, stop_request_messages, unstaged_run_events
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.store.save import SaveResult

STATUSES_WITHOUT_EVENT: Final = ("unchanged", "previewed")  # nothing has happened


async def publish_batch_events(
    publisher: Publisher,
    items: Sequence[BatchItem],
    book: UnitOfWork,
    saved: SaveResult,
    now: datetime,
) -> None:
    await publisher.publish_each(stop_request_messages(book))
    progress = planning_events(saved, now)
    await publish_events(
        publisher, [*_schedule_facts(items, now), *unstaged_run_events(book, saved, now), *progress]
    )


def _schedule_facts(items: Sequence[BatchItem], now: datetime) -> Iterator[OutgoingEvent]:
    for item in items:
        told = item.response
        if not isinstance(told, ScheduleResponse) or told.status in STATUSES_WITHOUT_EVENT:
            continue
        verb = f"schedule.{told.status}"
        fact = {  # as `ScheduleFact` reads it
            "schedule_id": told.id,
            "key": told.key,
            "version": told.version,
            "state": told.state,
            "actor": item.change.actor,
            "next_at": instant_text(told.next_at[0]) if told.next_at else None,
        }
        id_ = f"{told.id}/{item.change.accepted_at.isoformat()}/{item.source.index}"
        tenant = item.change.tenant
        made = make_event(tenant, verb, fact, id_=id_, subject=told.key or str(told.id), at=now)
        yield OutgoingEvent(tenant, verb, made)
