"""Applying changes: many in one transaction, answered from the record after the commit."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

from harebell.contract.commands import RunCancel
from harebell.contract.errors import Rejected
from harebell.contract.identity import RunKey
from harebell.contract.scalars import cut
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.bundle import waiting
from harebell.kernel.amqp.consume import Delivery, Outcome
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.replies import answer, answerable, reply
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import staging
from harebell.kernel.db.tickets import tickets_for
from harebell.kernel.routing import Routed
from harebell.ticker import planning, store
from harebell.ticker.batch import Batch, Item, batches, reply_body
from harebell.ticker.book import Book
from harebell.ticker.core import apply
from harebell.ticker.staging import write_advances
from harebell.ticker.telling import announce

log = structlog.get_logger()


@dataclass(slots=True)
class Changes:
    """The handler of `harebell.ticker`, which one ticker at a time consumes, in order."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: store.Versions
    horizon: timedelta
    wake: asyncio.Event

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for batch in batches(deliveries):
            if batch.changes:
                await self._apply(batch)
            outcomes += batch.outcomes
        return outcomes

    async def _apply(self, batch: Batch) -> None:
        items = batch.items
        with passing_faults():
            async with self.pool.acquire() as connection, connection.transaction():
                book, tickets = await self._write(connection, items)
                await self.publisher.publish_all(waiting(tickets, self.clock.now()))
                await failpoint.reach("ticker.change_before_commit")
        await failpoint.reach("ticker.change_after_commit")
        self.versions.keep(book.new_versions)
        self.wake.set()
        metrics.STAGED.inc(len(tickets))
        log.info("changes applied", commands=len(items), staged=len(tickets))
        await self._answer(batch)
        await announce(self.publisher, items, book, self.clock.now())

    async def _write(
        self, connection: asyncpg.Connection, items: Sequence[Item]
    ) -> tuple[Book, list[Routed]]:
        keys = [key for item in items if (key := item.key) is not None]
        answers = await store.answered(connection, keys)
        before = set(answers)
        fresh = [item for item in items if item.key not in before]
        book = await self._load(connection, fresh)
        for item in items:
            _decide(book, item, answers)
        tickets = await self._save(connection, book)
        new = {key: text for key, text in answers.items() if key not in before}
        await store.record(connection, new)
        return book, tickets

    async def _load(self, connection: asyncpg.Connection, items: Sequence[Item]) -> Book:
        asked = [item.asked for item in items if item.asked is not None]
        named = [RunKey(cut(each.accepted_at), each.schedule_id) for each in asked]
        named += [
            RunKey.parse(each.command.run_id)
            for each in asked
            if isinstance(each.command, RunCancel)
        ]
        schedules = [each.schedule_id for each in asked]
        return await store.load_book(connection, self.versions, schedules, named)

    async def _save(self, connection: asyncpg.Connection, book: Book) -> list[Routed]:
        """The book, and with it what has come to be due within the horizon."""
        now = self.clock.now()
        until = now + self.horizon
        await store.save_schedules(connection, book)
        await staging.cancel(connection, book.cancelled)
        await staging.request_stop(connection, book.stopping)
        renewed = {key: planning.place_of(version) for key, version in book.renewed.items()}
        await staging.renew(connection, renewed)
        await staging.skip(connection, [planning.untriggered(*each) for each in book.untriggered])
        touched = [book.entries[id_] for id_ in sorted(book.touched)]
        advances = [planning.advance_if_due(entry, now, until) for entry in touched]
        beside = [planning.triggered(version, instant) for version, instant in book.triggered]
        standing, tickets = await write_advances(connection, advances, now, beside=beside)
        await store.save_states(connection, standing)
        again = await tickets_for(connection, sorted(renewed)) if renewed else []
        return tickets + [Routed.of(ticket) for ticket in again]

    async def _answer(self, batch: Batch) -> None:
        for change, items in batch.changes:
            for item in items:
                result = "repeated" if item.told is None else "ok" if item.told.ok else "refused"
                metrics.COMMANDS.labels(change.verb, result).inc()
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


def _decide(book: Book, item: Item, answers: dict[store.CommandKey, bytes]) -> None:
    """A repeat gets the first one's answer and changes nothing."""
    if item.key is not None and item.key in answers:
        item.told, item.answer = None, answers[item.key]
        return
    if item.asked is not None:
        try:
            item.settle(apply(book, item.asked))
        except Rejected as error:
            item.refuse(error)
    if item.key is not None:
        answers[item.key] = item.answer
