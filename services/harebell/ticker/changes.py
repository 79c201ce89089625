"""Applying changes: many in one transaction, answered from the record after the commit."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.answers import SelectionAnswer
from harebell.contract.commands import (
    MAX_SELECTED,
    RunCancel,
    RunResolve,
    ScheduleSkip,
    ScheduleTrigger,
    SelectingCommand,
)
from harebell.contract.errors import Malformed, NotFound, Rejected
from harebell.contract.identity import RunKey
from harebell.contract.scalars import cut
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.consume import Delivery, Outcome
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.replies import answer, answerable, reply
from harebell.kernel.authorising import authorising
from harebell.kernel.clock import Clock
from harebell.kernel.timetable import TICK
from harebell.ticker import store
from harebell.ticker.batch import Batch, Item, batches, reply_body
from harebell.ticker.book import Book, Entry
from harebell.ticker.core import Answer, Asked, apply
from harebell.ticker.core.selecting import apply_to_all, is_selecting
from harebell.ticker.saving import Saved, save_book
from harebell.ticker.telling import announce
from harebell.ticker.versions import Versions

TRIGGER_INSTANTS: Final = 20  # milliseconds in which another run of a schedule may stand already

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Applied:
    """A batch that has been committed, and is still to be told."""

    batch: Batch
    book: Book
    saved: Saved
    at: datetime


@dataclass(slots=True)
class Changes:
    """The handler of `harebell.ticker`, which one ticker at a time consumes, in order."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: Versions
    horizon: timedelta
    wake: asyncio.Event
    note: Callable[[Sequence[Entry]], None]

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """While the database writes a batch, the next one is read and the one before it told."""
        outcomes: list[Outcome] = []
        reading = batches(deliveries)
        batch, applied = await anext(reading, None), None
        while batch is not None or applied is not None:
            outcomes += [] if batch is None else batch.outcomes
            writing = asyncio.ensure_future(self._apply(batch))
            following = asyncio.ensure_future(anext(reading, None))
            telling = asyncio.ensure_future(self._tell(applied))
            # all three to their end: what fails is handled again, beside nothing of its first time
            await asyncio.gather(writing, following, telling, return_exceptions=True)
            applied, batch = writing.result(), following.result()
            telling.result()
        return outcomes

    async def _apply(self, batch: Batch | None) -> Applied | None:
        if batch is None or not batch.changes:
            return None
        items = batch.items
        async with authorising(self.pool, self.publisher, self.clock) as authority:
            book, saved = await self._write(authority.connection, items)
            await authority.publish(saved.tickets)
            await failpoint.reach("ticker.change_before_commit")
        await failpoint.reach("ticker.change_after_commit")
        now = self.clock.now()
        self.versions.keep(version for version, _ in book.new_versions)
        self.wake.set()
        self.note(saved.standing)
        metrics.STAGED.inc(len(saved.tickets))
        _count(batch, now)
        log.info("changes applied", commands=len(items), staged=len(saved.tickets))
        return Applied(batch, book, saved, now)

    async def _tell(self, applied: Applied | None) -> None:
        if applied is None:
            return
        await self._answer(applied.batch)
        await announce(self.publisher, applied.batch.items, applied.book, applied.saved, applied.at)

    async def _write(
        self, connection: asyncpg.Connection, items: Sequence[Item]
    ) -> tuple[Book, Saved]:
        keys = [key for item in items if (key := item.key) is not None]
        answers = await store.answered(connection, keys)
        before = set(answers)
        fresh = [item for item in items if item.key not in before]
        selected = {id(item): await self._selected(connection, item) for item in fresh}
        book = await self._load(connection, fresh, chain.from_iterable(selected.values()))
        now = self.clock.now()
        for item in items:
            _decide(book, item, answers, selected.get(id(item), []), now)
        saved = await save_book(connection, book, now, now + self.horizon)
        new = {key: text for key, text in answers.items() if key not in before}
        await store.record(connection, new)
        await self._keep_receipts(connection, fresh)
        return book, saved

    async def _selected(self, connection: asyncpg.Connection, item: Item) -> list[UUID]:
        """The schedules of a command to many; it is refused when there are too many."""
        command = None if item.asked is None else item.asked.command
        if item.asked is None or not isinstance(command, SelectingCommand):
            return []
        tenant = item.asked.tenant
        found: list[UUID] | None = []
        if command.receipt is not None:
            found = await store.receipt(connection, tenant, command.receipt)
            if found is None:
                item.refuse(NotFound("there is no such receipt", field="receipt"))
        elif command.select is not None:
            found = await store.select(connection, tenant, command.select, MAX_SELECTED + 1)
            if len(found) > MAX_SELECTED:
                reason = f"matches more than {MAX_SELECTED} schedules"
                item.refuse(Malformed(reason, field="select", code="too_many"))
        return found or []

    async def _keep_receipts(self, connection: asyncpg.Connection, items: Sequence[Item]) -> None:
        for item in items:
            told = item.told
            if isinstance(told, SelectionAnswer) and told.changed:
                tenant, verb = item.change.tenant, item.change.verb
                await store.keep_receipt(connection, tenant, told.receipt, told.changed, verb)

    async def _load(
        self, connection: asyncpg.Connection, items: Sequence[Item], selected: Iterable[UUID]
    ) -> Book:
        """What the commands are about; the runs that they name, and may name by their time."""
        asked = [item.asked for item in items if item.asked is not None]
        schedules = [each.schedule_id for each in asked if each.schedule_id is not None]
        named = [
            RunKey(moment, each.schedule_id)
            for each in asked
            if each.schedule_id is not None
            for moment in _moments(each)
        ]
        return await store.load_book(connection, self.versions, [*schedules, *selected], named)

    async def _answer(self, batch: Batch) -> None:
        replies = [
            reply(
                change.reply_to,
                change.correlation_id,
                reply_body(change, items),
                name=f"{change.correlation_id}/answer",
            )
            for change, items in batch.changes
            if change.reply_to is not None and answerable(change.reply_to)
        ]
        await asyncio.gather(*(answer(self.publisher, each) for each in replies))


def _count(batch: Batch, now: datetime) -> None:
    """What was refused, or is a repeat, has no effect that could be late."""
    for change, items in batch.changes:
        took = max(0.0, (now - change.accepted_at).total_seconds())
        latency = metrics.CHANGE_LATENCY.labels(change.verb)
        results = Counter(
            "repeated" if item.told is None else "ok" if item.told.ok else "refused"
            for item in items
        )
        for result, count in results.items():
            metrics.COMMANDS.labels(change.verb, result).inc(count)
        for _ in range(results["ok"]):
            latency.observe(took)


def _moments(asked: Asked) -> list[datetime]:
    match asked.command:
        case RunCancel(run_id=run_id) | RunResolve(run_id=run_id):
            return [RunKey.parse(run_id).scheduled_for]
        case ScheduleSkip(at=at):
            return [at]
        case ScheduleTrigger():  # where its run may come to be
            return [cut(asked.accepted_at) + n * TICK for n in range(TRIGGER_INSTANTS)]
        case _:
            return []


def _decide(
    book: Book,
    item: Item,
    answers: dict[store.CommandKey, bytes],
    selected: Sequence[UUID],
    now: datetime,
) -> None:
    """A repeat gets the first one's answer and changes nothing."""
    if item.key is not None and item.key in answers:
        item.told, item.answer = None, answers[item.key]
        return
    if item.asked is not None and item.told is None:
        try:
            asked = item.asked._replace(applied_at=now)
            item.settle(_applied(book, item, asked, selected))
        except Rejected as error:
            item.refuse(error)
    if item.key is not None:
        answers[item.key] = item.answer


def _applied(book: Book, item: Item, asked: Asked, selected: Sequence[UUID]) -> Answer:
    if not is_selecting(asked.command):
        return apply(book, asked)
    receipt = item.source.request_id
    if receipt is None:
        raise Malformed("a command to many needs one", field="request_id", code="missing_field")
    return apply_to_all(book, asked, selected, receipt)
