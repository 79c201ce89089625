"""What a ticker says after a commit: facts about schedules and runs, and orders to stop."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import structlog

from harebell.contract.answers import ScheduleAnswer
from harebell.contract.events import event
from harebell.contract.identity import RunKey
from harebell.contract.scalars import instant_text
from harebell.kernel import metrics
from harebell.kernel.amqp.events import Fact, tell
from harebell.kernel.amqp.publish import Outgoing, Publisher
from harebell.kernel.amqp.stories import fact_of_unattempted, stop_message
from harebell.kernel.ledger import Reason, RunState, ScheduleState, withdrawn_as
from harebell.ticker.batch import Item
from harebell.ticker.book import Book, Entry
from harebell.ticker.saving import Saved

COMMENCE: Final = "commence"  # of a change that was put off until its time
SILENT: Final = ("unchanged", "previewed")  # nothing has happened

log = structlog.get_logger()


async def announce(
    publisher: Publisher, items: Sequence[Item], book: Book, saved: Saved, now: datetime
) -> None:
    await publisher.try_all(stops(book))
    progress = progress_facts(saved, now)
    await tell(
        publisher, [*_schedule_facts(items, now), *withdrawn_facts(book, saved, now), *progress]
    )


def stops(book: Book) -> list[Outgoing]:
    """To each executor that holds a run which should not start; it would learn of it anyway."""
    by_holder: dict[str, list[RunKey]] = {}
    for key, reason in book.stopping.items():
        run = book.runs.get(key)
        if reason is not None and run is not None and run.lease_holder is not None:
            by_holder.setdefault(run.lease_holder, []).append(key)
    return [stop_message(holder, keys) for holder, keys in by_holder.items()]


def _schedule_facts(items: Sequence[Item], now: datetime) -> Iterator[Fact]:
    for item in items:
        told = item.told
        if not isinstance(told, ScheduleAnswer) or told.status in SILENT:
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
        made = event(tenant, verb, fact, id_=id_, subject=told.key or str(told.id), at=now)
        yield Fact(tenant, verb, made)


def withdrawn_facts(book: Book, saved: Saved, now: datetime) -> Iterator[Fact]:
    settled = saved.settled
    withdrawn = {key: why for key, why in book.cancelled.items() if key not in settled}
    for key, reason in withdrawn.items():
        tenant = book.entries[key.schedule_id].version.tenant
        yield fact_of_unattempted(tenant, key, withdrawn_as(reason), reason, now)
    for extra, reason in book.dropped:
        key = RunKey(extra.instant, extra.version.schedule_id)
        yield fact_of_unattempted(extra.version.tenant, key, RunState.SKIPPED, reason, now)
    for key, state in book.resolved.items():
        if state is not RunState.STAGED:
            tenant = book.entries[key.schedule_id].version.tenant
            yield fact_of_unattempted(tenant, key, state, Reason.REQUESTED, now)


def progress_facts(saved: Saved, now: datetime) -> Iterator[Fact]:
    """What happened to schedules by themselves: instants passed over, a state come to."""
    standing = {entry.id: entry for entry in saved.standing}
    for made in saved.advances:
        for skip in made.not_owed:
            tenant, key, reason = skip.place.tenant, skip.key, skip.reason
            yield fact_of_unattempted(tenant, key, RunState.SKIPPED, reason, now, runs=skip.count)
        entry = standing.get(made.before.id, made.entry)
        if entry.state is not made.before.state:
            yield state_fact(entry, now)
        if entry.version is not made.before.version:
            took = (now - entry.version.since).total_seconds()
            metrics.CHANGE_LATENCY.labels(COMMENCE).observe(max(0.0, took))
            yield state_fact(entry, now, verb="schedule.updated")


_VERBS: Final = {ScheduleState.ACTIVE: "schedule.resumed"}


def state_fact(entry: Entry, now: datetime, *, verb: str | None = None) -> Fact:
    """Of a schedule that came to a state without being told to."""
    verb = verb or _VERBS.get(entry.state, f"schedule.{entry.state}")
    key, tenant = entry.version.terms.key, entry.version.tenant
    fact = {  # as `ScheduleFact` reads it
        "schedule_id": entry.id,
        "key": key,
        "version": entry.version.number,
        "state": entry.state,
        "note": entry.reason,
        "next_at": entry.next_at,
    }
    id_ = f"{entry.id}/{now.isoformat()}"
    return Fact(
        tenant, verb, event(tenant, verb, fact, id_=id_, subject=key or str(entry.id), at=now)
    )
