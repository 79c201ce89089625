"""What a ticker says after a commit: facts about schedules and runs, and orders to stop."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import structlog

from harebell.contract import names
from harebell.contract.answers import ScheduleAnswer
from harebell.contract.codec import encode_all
from harebell.contract.events import RunFact, ScheduleFact, event
from harebell.contract.identity import RunKey
from harebell.contract.stop import Stop
from harebell.kernel import metrics
from harebell.kernel.amqp.events import Fact, tell
from harebell.kernel.amqp.publish import Outgoing, Publisher
from harebell.kernel.bus import control_key
from harebell.kernel.ledger import Reason, RunState
from harebell.ticker.batch import Item
from harebell.ticker.book import Book

SILENT = "unchanged"  # nothing has happened

log = structlog.get_logger()


async def announce(publisher: Publisher, items: Sequence[Item], book: Book, now: datetime) -> None:
    await publisher.try_all(_stops(book))
    await tell(publisher, [*_schedule_facts(items, now), *_cancelled_facts(book, now)])


def _stops(book: Book) -> list[Outgoing]:
    """To each executor that holds a run which should not start; it would learn of it anyway."""
    by_holder: dict[str, list[Stop]] = {}
    for key, reason in book.stopping.items():
        run = book.runs.get(key)
        if reason is not None and run is not None and run.lease_holder is not None:
            by_holder.setdefault(run.lease_holder, []).append(Stop(run_id=str(key)))
    return [
        Outgoing(
            exchange=names.CONTROL,
            routing_key=control_key(holder),
            body=encode_all(stops),
            type=names.message_type("run.stop"),
            message_id=f"{stops[0].run_id}/stop",
        )
        for holder, stops in by_holder.items()
    ]


def _schedule_facts(items: Sequence[Item], now: datetime) -> Iterator[Fact]:
    for item in items:
        told = item.told
        if not isinstance(told, ScheduleAnswer) or told.status == SILENT:
            continue
        verb = f"schedule.{told.status}"
        fact = ScheduleFact(
            schedule_id=told.id,
            key=told.key,
            version=told.version,
            state=told.state,
            actor=item.change.actor,
            next_at=told.next_at[0] if told.next_at else None,
        )
        id_ = f"{told.id}/{item.change.accepted_at.isoformat()}/{item.source.index}"
        tenant = item.change.tenant
        made = event(tenant, verb, fact, id_=id_, subject=told.key or str(told.id), at=now)
        yield Fact(tenant, verb, made)


def _cancelled_facts(book: Book, now: datetime) -> Iterator[Fact]:
    for key, reason in book.cancelled.items():
        entry = book.entries[key.schedule_id]
        metrics.RUNS.labels(RunState.CANCELLED, reason).inc()
        yield run_fact(entry.version.tenant, key, RunState.CANCELLED, reason, now)


def run_fact(
    tenant: str, key: RunKey, state: RunState, reason: Reason | str | None, now: datetime
) -> Fact:
    """Of a run that ends without an attempt."""
    verb = f"run.{state}"
    fact = RunFact(
        run_id=str(key),
        schedule_id=key.schedule_id,
        scheduled_for=key.scheduled_for,
        attempt=0,
        state=state,
        reason=reason,
        finished_at=now,
    )
    id_ = f"{key}/{now.isoformat()}"
    return Fact(tenant, verb, event(tenant, verb, fact, id_=id_, subject=str(key), at=now))
