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

from harebell.contract.commands import (
    MAX_BULK_SCHEDULES,
    BulkCommand,
    RunCancel,
    RunResolve,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import InvalidInput, NotFound, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import BulkResponse
from harebell.contract.types import truncate_ms
from harebell.domain.recurrence import RESOLUTION
from harebell.messaging.acknowledge import Delivery, Outcome
from harebell.messaging.publisher import Publisher
from harebell.messaging.replies import can_reply_to, reply, send_reply
from harebell.runtime import failpoint
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.ticker import metrics
from harebell.ticker.commands.batch import BatchItem, CommandBatch, read_batches, response_body
from harebell.ticker.commands.bulk import apply_bulk, is_bulk
from harebell.ticker.commands.events import publish_batch_events
from harebell.ticker.commands.handlers import CommandContext, Response, apply_command
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.store import command_results, schedules
from harebell.ticker.store.save import SaveResult, save_unit_of_work
from harebell.ticker.store.versions import VersionCache

TRIGGER_INSTANTS: Final = 20  # milliseconds in which another run of a schedule may stand already

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """A batch that has been committed, and is still to be told."""

    batch: CommandBatch
    book: UnitOfWork
    saved: SaveResult
    at: datetime


@dataclass(slots=True)
class CommandApplier:
    """The handler of `harebell.ticker`, which one ticker at a time consumes, in order."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: VersionCache
    horizon: timedelta
    wake: asyncio.Event
    on_saved: Callable[[Sequence[ScheduleRecord]], None]

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """While the database writes a batch, the next one is read and the one before it told."""
        outcomes: list[Outcome] = []
        reading = read_batches(deliveries)
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

    async def _apply(self, batch: CommandBatch | None) -> AppliedBatch | None:
        if batch is None or not batch.changes:
            return None
        items = batch.items
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            book, saved = await self._write(authority.connection, items)
            await authority.publish(saved.tickets)
            await failpoint.reach("ticker.change_before_commit")
        await failpoint.reach("ticker.change_after_commit")
        now = self.clock.now()
        self.versions.add(version for version, _ in book.new_versions)
        self.wake.set()
        self.on_saved(saved.records)
        metrics.RUNS_STAGED.inc(len(saved.tickets))
        _count(batch, now)
        log.info("changes applied", commands=len(items), staged=len(saved.tickets))
        return AppliedBatch(batch, book, saved, now)

    async def _tell(self, applied: AppliedBatch | None) -> None:
        if applied is None:
            return
        await self._answer(applied.batch)
        await publish_batch_events(
            self.publisher, applied.batch.items, applied.book, applied.saved, applied.at
        )

    async def _write(
        self, connection: asyncpg.Connection, items: Sequence[BatchItem]
    ) -> tuple[UnitOfWork, SaveResult]:
        keys = [key for item in items if (key := item.key) is not None]
        answers = await command_results.load_responses(connection, keys)
        before = set(answers)
        fresh = [item for item in items if item.key not in before]
        selected = {id(item): await self._selected(connection, item) for item in fresh}
        book = await self._load(connection, fresh, chain.from_iterable(selected.values()))
        now = self.clock.now()
        for item in items:
            _decide(book, item, answers, selected.get(id(item), []), now)
        saved = await save_unit_of_work(connection, book, now, now + self.horizon)
        new = {key: text for key, text in answers.items() if key not in before}
        await command_results.record_responses(connection, new)
        await self._keep_receipts(connection, fresh)
        return book, saved

    async def _selected(self, connection: asyncpg.Connection, item: BatchItem) -> list[UUID]:
        """The schedules of a command to many; it is refused when there are too many."""
        command = None if item.context is None else item.context.command
        if item.context is None or not isinstance(command, BulkCommand):
            return []
        tenant = item.context.tenant
        found: list[UUID] | None = []
        if command.bulk_operation_id is not None:
            found = await command_results.load_bulk_operation(
                connection, tenant, command.bulk_operation_id
            )
            if found is None:
                item.reject(NotFound("there is no such bulk operation", field="bulk_operation_id"))
        elif command.select is not None:
            found = await schedules.find_schedules(
                connection, tenant, command.select, MAX_BULK_SCHEDULES + 1
            )
            if len(found) > MAX_BULK_SCHEDULES:
                reason = f"matches more than {MAX_BULK_SCHEDULES} schedules"
                item.reject(InvalidInput(reason, field="select", code="too_many"))
        return found or []

    async def _keep_receipts(
        self, connection: asyncpg.Connection, items: Sequence[BatchItem]
    ) -> None:
        for item in items:
            told = item.response
            if isinstance(told, BulkResponse) and told.changed:
                tenant, verb = item.change.tenant, item.change.verb
                await command_results.record_bulk_operation(
                    connection, tenant, told.bulk_operation_id, told.changed, verb
                )

    async def _load(
        self, connection: asyncpg.Connection, items: Sequence[BatchItem], selected: Iterable[UUID]
    ) -> UnitOfWork:
        """What the commands are about; the runs that they name, and may name by their time."""
        asked = [item.context for item in items if item.context is not None]
        schedule_ids = [each.schedule_id for each in asked if each.schedule_id is not None]
        named = [
            RunKey(moment, each.schedule_id)
            for each in asked
            if each.schedule_id is not None
            for moment in _moments(each)
        ]
        return await schedules.load_unit_of_work(
            connection, self.versions, [*schedule_ids, *selected], named
        )

    async def _answer(self, batch: CommandBatch) -> None:
        replies = [
            reply(
                change.reply_to,
                change.correlation_id,
                response_body(change, items),
                message_id=f"{change.correlation_id}/response",
            )
            for change, items in batch.changes
            if change.reply_to is not None and can_reply_to(change.reply_to)
        ]
        await asyncio.gather(*(send_reply(self.publisher, each) for each in replies))


def _count(batch: CommandBatch, now: datetime) -> None:
    """What was refused, or is a repeat, has no effect that could be late."""
    for change, items in batch.changes:
        took = max(0.0, (now - change.accepted_at).total_seconds())
        latency = metrics.CHANGE_LATENCY.labels(change.verb)
        results = Counter(
            "repeated" if item.response is None else "applied" if item.response.ok else "rejected"
            for item in items
        )
        for result, count in results.items():
            runtime_metrics.COMMANDS.labels(change.verb, result).inc(count)
        for _ in range(results["ok"]):
            latency.observe(took)


def _moments(asked: CommandContext) -> list[datetime]:
    match asked.command:
        case RunCancel(run_id=run_id) | RunResolve(run_id=run_id):
            return [RunKey.parse(run_id).scheduled_for]
        case ScheduleSkip(at=at):
            return [at]
        case ScheduleTrigger():  # where its run may come to be
            return [
                truncate_ms(asked.accepted_at) + n * RESOLUTION for n in range(TRIGGER_INSTANTS)
            ]
        case _:
            return []


def _decide(
    book: UnitOfWork,
    item: BatchItem,
    answers: dict[command_results.CommandKey, bytes],
    selected: Sequence[UUID],
    now: datetime,
) -> None:
    """A repeat gets the first one's answer and changes nothing."""
    if item.key is not None and item.key in answers:
        item.response, item.response_body = None, answers[item.key]
        return
    if item.context is not None and item.response is None:
        try:
            asked = item.context._replace(applied_at=now)
            item.set_response(_applied(book, item, asked, selected))
        except Rejected as error:
            item.reject(error)
    if item.key is not None:
        answers[item.key] = item.response_body


def _applied(
    book: UnitOfWork, item: BatchItem, asked: CommandContext, selected: Sequence[UUID]
) -> Response:
    if not is_bulk(asked.command):
        return apply_command(book, asked)
    receipt = item.source.request_id
    if receipt is None:
        raise InvalidInput("a command to many needs one", field="request_id", code="missing_field")
    return apply_bulk(book, asked, selected, receipt)
