"""The application of commands: one publishing transaction for each batch, in one sequence."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.calendar import CalendarDelete, CalendarPut
from harebell.contract.commands import (
    MAX_BULK_SCHEDULES,
    BulkCommand,
    ScheduleBackfill,
    SchedulePatch,
    SchedulePut,
)
from harebell.contract.errors import InvalidInput, NotFound, Rejected
from harebell.contract.responses import BulkResponse, ErrorResponse, ScheduleResponse
from harebell.contract.types import instant_text
from harebell.domain.run_states import ScheduleState
from harebell.domain.usage_counts import BACKFILL_RUNS, SCHEDULES, UsageCounts, UsageKey
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.messaging import run_log
from harebell.messaging.accepted_messages import CommandReplies, tenant_of
from harebell.messaging.acknowledge import Delivery, Outcome
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime import failpoint
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.computations import Computations
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs.staging import rebuild_tickets
from harebell.ticker import metrics
from harebell.ticker.commands.batch import BatchItem, CommandBatch, PartSize, read_batches
from harebell.ticker.commands.bulk import apply_bulk
from harebell.ticker.commands.calendars import uses_calendar
from harebell.ticker.commands.events import publish_batch_events, rejected_messages
from harebell.ticker.commands.handlers import CommandContext, Response, apply_command
from harebell.ticker.commands.manual_runs import find_times
from harebell.ticker.model.planning import plan_unit
from harebell.ticker.model.request import find_schedule
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.plan_writer import SaveResult, save_planning_steps, save_unit_of_work
from harebell.ticker.stage_spans import record_batch
from harebell.ticker.store.command_results import (
    CommandKey,
    load_bulk_operation,
    load_removed_until,
    load_responses,
    record_bulk_operation,
    record_responses,
)
from harebell.ticker.store.schedule_counts import ScheduleCounts, ScheduleRoom
from harebell.ticker.store.schedules import find_foreign, find_schedules, load_unit_of_work
from harebell.ticker.store.versions import VersionCache, find_schedules_of_calendar, load_calendars

APPLIED: Final = "applied"
REPEATED: Final = "repeated"
REJECTED: Final = "rejected"
MAX_BACKFILL_CPU: Final = 5.0  # seconds of the search for the times of one backfill
MAX_UNINTERRUPTED: Final = 0.02  # seconds between commands before another task may run

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedBatch:
    """A committed batch whose replies and events are not published yet."""

    batch: CommandBatch
    unit: UnitOfWork
    saved: SaveResult
    applied_at: datetime


@dataclass(slots=True, kw_only=True)
class CommandApplier:
    """The handler of `harebell.ticker`, which one ticker at a time consumes in order."""

    pool: asyncpg.Pool
    publisher: Publisher
    replies: CommandReplies
    clock: Clock
    versions: VersionCache
    horizon: timedelta
    on_saved: Callable[[Sequence[ScheduleRecord]], None]
    schedule_counts: ScheduleCounts
    usage: UsageCounts = field(default_factory=UsageCounts)
    part_size: PartSize = field(default_factory=PartSize)
    computations: Computations = field(
        default_factory=lambda: Computations(max_cpu=MAX_BACKFILL_CPU)
    )

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Apply the deliveries in batches and return one outcome for each delivery.

        While the database writes a batch, the ticker parses the next batch.
        During the same time, the ticker publishes the events of the previous batch.
        """
        outcomes: list[Outcome] = []
        for delivery in deliveries:
            self.part_size.note(tenant_of(delivery))
        batches = read_batches(deliveries, self.part_size)
        batch, applied = await anext(batches, None), None
        while batch is not None or applied is not None:
            outcomes += [] if batch is None else batch.outcomes
            applying = asyncio.ensure_future(self.apply_batch(batch))
            reading = asyncio.ensure_future(anext(batches, None))
            publishing = asyncio.ensure_future(self._publish(applied))
            # After an error all deliveries are handled again. No task may still run then.
            await asyncio.gather(applying, reading, publishing, return_exceptions=True)
            applied, batch = applying.result(), reading.result()
            publishing.result()
        return outcomes

    async def apply_batch(self, batch: CommandBatch | None) -> AppliedBatch | None:
        """Apply a batch in one transaction and publish its tickets before the commit.

        Cancelled and moved runs are written before new runs, because both can have the same key.
        """
        if batch is None or not batch.messages:
            return None
        await self._find_times(batch)
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            connection = transaction.connection
            repeated = await load_responses(connection, batch.keys)
            unit = await self._load(connection, batch.without(repeated))
            now = self.clock.now()
            creations = count_creations(unit, batch.without(repeated))
            rooms = await self.schedule_counts.rooms(connection, creations)
            await decide_batch(unit, batch, repeated, now=now, rooms=rooms)
            steps = plan_unit(unit, now=now, until=now + self.horizon)
            await save_unit_of_work(connection, unit)
            saved = await save_planning_steps(connection, steps, now=now)
            moved = await rebuild_tickets(connection, unit.moved_runs)
            await record_responses(connection, batch.responses)
            await self.publisher.publish_all(rejected_messages(batch, now))
            await _record_bulk_operations(connection, batch)
            tickets = [*saved.tickets, *map(TicketHeader.of, moved)]
            await transaction.publish(tickets)
            await failpoint.reach("ticker.change_before_commit")
        await failpoint.reach("ticker.change_after_commit")
        applied_at = self.clock.now()
        self.schedule_counts.record(rooms)
        self.versions.add(version for version, _ in unit.new_versions)
        self.on_saved(saved.records)
        metrics.RUNS_STAGED.inc(len(tickets))
        _count_commands(batch, applied_at)
        count_usage(self.usage, batch.items)
        log.info("commands applied", commands=len(batch.items), staged=len(tickets))
        run_log.log_staged(tickets)
        record_batch(batch, started_at=now, ended_at=applied_at)
        return AppliedBatch(batch=batch, unit=unit, saved=saved, applied_at=applied_at)

    async def _find_times(self, batch: CommandBatch) -> None:
        """Find the times of backfills before their transaction, which then locks rows briefly.

        A repeated backfill gets its first response, so that a repeated message makes progress.
        """
        if all(item.backfill is None for item in batch.items):
            return
        with translate_db_errors():
            async with self.pool.acquire() as connection, connection.transaction():
                repeated = await load_responses(connection, batch.keys)
                items = batch.without(repeated)
                unit = await self._load(connection, items)
        for item in items:
            context, command = item.context, item.backfill
            if item.response is not None or context is None or command is None:
                continue
            try:
                version = find_schedule(unit, context).version
                found = await self.computations.run(partial(find_times, command, version))
                item.context = context._replace(found_times=found)
            except Rejected as error:
                item.reject(error)

    async def _load(self, connection: asyncpg.Connection, items: Sequence[BatchItem]) -> UnitOfWork:
        """Load the schedules of the commands, their open runs and the runs that commands name."""
        for item in items:
            item.schedule_ids = await _find_bulk_schedules(connection, item)
            item.schedule_ids = item.schedule_ids or await _find_users(connection, item)
            await _check_history(connection, item)
        contexts = await _without_foreign(connection, items)
        named = [each.schedule_id for each in contexts if each.schedule_id is not None]
        selected = [schedule_id for item in items for schedule_id in item.schedule_ids]
        unit = await load_unit_of_work(
            connection,
            self.versions,
            [*named, *selected],
            named_runs=[key for each in contexts for key in each.named_runs],
        )
        tenants = {each.tenant for each in contexts if _needs_calendars(unit, each)}
        unit.calendars = await load_calendars(connection, tenants)
        unit.unused_calendars = {use for item in items for use in _unused(unit, item)}
        return unit

    async def _publish(self, applied: AppliedBatch | None) -> None:
        if applied is not None:
            await publish_batch_events(
                self.publisher,
                applied.batch,
                applied.unit,
                replies=self.replies,
                saved=applied.saved,
                now=applied.applied_at,
            )


async def _without_foreign(
    connection: asyncpg.Connection, items: Sequence[BatchItem]
) -> list[CommandContext]:
    """Return the commands whose rows may be locked.

    The others name a schedule of another tenant by its id, and do not find it.
    """
    contexts = [item.context for item in items if item.context is not None]
    named = {(each.tenant, id_) for each in contexts if (id_ := each.named_schedule) is not None}
    foreign = await find_foreign(connection, named)
    return [each for each in contexts if each.named_schedule not in foreign]


async def _find_bulk_schedules(connection: asyncpg.Connection, item: BatchItem) -> Sequence[UUID]:
    """Return the schedules of a bulk operation. Reject the item if there are too many."""
    command = None if item.context is None else item.context.command
    if item.context is None or not isinstance(command, BulkCommand):
        return ()
    tenant = item.context.tenant
    if command.bulk_operation_id is not None:
        changed = await load_bulk_operation(connection, tenant, command.bulk_operation_id)
        if changed is None:
            reason = f"No bulk operation has the id {command.bulk_operation_id!r}."
            item.reject(NotFound(reason, field="bulk_operation_id"))
        return changed or ()
    if command.select is None:
        return ()
    limit = MAX_BULK_SCHEDULES + 1
    found = await find_schedules(connection, tenant, command.select, limit=limit)
    if len(found) == limit:
        reason = f"The filter must match at most {MAX_BULK_SCHEDULES} schedules, not more."
        item.reject(InvalidInput(reason, field="select", code="too_many"))
    return found


async def _find_users(connection: asyncpg.Connection, item: BatchItem) -> Sequence[UUID]:
    """Return the schedules of a calendar. Reject a change of a calendar with too many of them."""
    command = None if item.context is None else item.context.command
    if item.context is None or not isinstance(command, CalendarPut | CalendarDelete):
        return ()
    limit, key = MAX_BULK_SCHEDULES + 1, (item.context.tenant, command.name)
    found = await find_schedules_of_calendar(connection, key, limit=limit)
    if len(found) == limit:
        reason = f"A calendar that changes must have at most {MAX_BULK_SCHEDULES} schedules."
        item.reject(InvalidInput(reason, field="name", code="too_many"))
        return ()
    return found


def _needs_calendars(unit: UnitOfWork, context: CommandContext) -> bool:
    """Return whether the command changes a calendar, or may use one in a version."""
    match context.command:
        case CalendarPut() | CalendarDelete():
            return True
        case SchedulePut(calendars=calendars):
            return calendars is not None
        case SchedulePatch(set_=fields):
            record = (
                None if context.schedule_id is None else unit.schedules.get(context.schedule_id)
            )
            versions = () if record is None else (record.version, *record.pending)
            return "calendars" in fields or any(each.policy.calendars for each in versions)
        case _:
            return False


def _unused(unit: UnitOfWork, item: BatchItem) -> Iterator[tuple[str, str, UUID]]:
    """Yield the schedules that were found by a calendar and no longer use it."""
    context = item.context
    if context is None or not isinstance(context.command, CalendarPut | CalendarDelete):
        return
    for schedule_id in item.schedule_ids:
        record = unit.schedules.get(schedule_id)
        if record is not None and not uses_calendar(record, context.command.name):
            yield context.tenant, context.command.name, schedule_id


async def _check_history(connection: asyncpg.Connection, item: BatchItem) -> None:
    """Reject a backfill of a time whose run the retention may have removed.

    Without its row, a run that has executed would be executed again.
    """
    context = item.context
    if context is None or not isinstance(context.command, ScheduleBackfill):
        return
    removed_until = await load_removed_until(connection, context.tenant)
    if removed_until is not None and context.command.from_ < removed_until:
        start = instant_text(removed_until)
        reason = f"The start must not be before {start}, because earlier history was removed."
        item.reject(InvalidInput(reason, field="from", code="too_late"))


def count_creations(unit: UnitOfWork, items: Iterable[BatchItem]) -> Counter[str]:
    """Return the number of commands by tenant that may create or revive a schedule."""
    return Counter(
        item.message.tenant for item in items if item.response is None and _creates(unit, item)
    )


def _creates(unit: UnitOfWork, item: BatchItem) -> bool:
    """Return whether the command creates a schedule, or starts an ended one again."""
    context = item.context
    if context is None or not isinstance(context.command, SchedulePut | SchedulePatch):
        return False
    record = None if context.schedule_id is None else unit.schedules.get(context.schedule_id)
    if record is None or record.state is ScheduleState.DELETED:
        return isinstance(context.command, SchedulePut)
    return bool(context.command.revive) and unit.has_ended(record)


async def decide_batch(
    unit: UnitOfWork,
    batch: CommandBatch,
    repeated: Mapping[CommandKey, bytes],
    *,
    now: datetime,
    rooms: Mapping[str, ScheduleRoom],
) -> None:
    """Apply each command to the unit and set its response.

    Repeated commands change nothing and get the first response.
    If a command would create or revive a schedule beyond the quota of its tenant, it is rejected.
    Between the commands, batches of other tenants may be applied.
    """
    responses = dict(repeated)
    resumed_at = monotonic()
    for item in batch.items:
        if monotonic() - resumed_at > MAX_UNINTERRUPTED:
            await asyncio.sleep(0)
            resumed_at = monotonic()
        if item.key is not None and item.key in responses:
            item.set_repeated(responses[item.key])
            continue
        if item.context is not None and item.response is None:
            try:
                room = rooms.get(item.message.tenant) if _creates(unit, item) else None
                if room is not None:
                    room.check()
                item.set_response(_apply(unit, item, item.context._replace(applied_at=now)))
                if room is not None:
                    room.take()
            except Rejected as error:
                item.reject(error)
        if item.key is not None:
            responses[item.key] = item.response_body


def _apply(unit: UnitOfWork, item: BatchItem, context: CommandContext) -> Response:
    if not context.command.is_bulk:
        return apply_command(unit, context)
    request_id = item.accepted.request_id
    if request_id is None:
        raise InvalidInput(
            "A bulk operation must have a request id, because this id identifies the operation.",
            field="request_id",
            code="missing_field",
        )
    return apply_bulk(unit, context, item.schedule_ids, bulk_operation_id=request_id)


async def _record_bulk_operations(connection: asyncpg.Connection, batch: CommandBatch) -> None:
    for item in batch.items:
        response = item.response
        if isinstance(response, BulkResponse) and response.changed:
            await record_bulk_operation(
                connection,
                item.message.tenant,
                response.bulk_operation_id,
                changed=response.changed,
                verb=item.message.verb,
            )


def _count_commands(batch: CommandBatch, now: datetime) -> None:
    """Count the commands by result, and observe the latency of the applied commands only."""
    results: Counter[tuple[str, str]] = Counter()
    latencies: dict[str, list[float]] = defaultdict(list)
    for message, items in batch.messages:
        found = [_result_of(item) for item in items]
        results.update((message.verb, result) for result in found)
        seconds = max(0.0, (now - message.accepted_at).total_seconds())
        latencies[message.verb] += [seconds] * found.count(APPLIED)
    for labels, count in results.items():
        runtime_metrics.COMMANDS.labels(*labels).inc(count)
    for verb, observed in latencies.items():
        latency = metrics.CHANGE_LATENCY.labels(verb)
        for seconds in observed:
            latency.observe(seconds)


def count_usage(usage: UsageCounts, items: Iterable[BatchItem]) -> None:
    """Count the runs of backfills, and the rejections by quotas that only the ticker checks."""
    for item in items:
        tenant, response = item.message.tenant, item.response
        if isinstance(response, ScheduleResponse) and response.status == "backfilled":
            usage.add(UsageKey(tenant, BACKFILL_RUNS), len(response.runs or ()))
        # Intake has counted its own rejections, which an item has before the ticker parses it.
        if isinstance(response, ErrorResponse) and response.error.rule == SCHEDULES:
            usage.add(UsageKey(tenant, SCHEDULES, response.error.code))


def _result_of(item: BatchItem) -> str:
    if item.response is None:
        return REPEATED
    return APPLIED if item.response.ok else REJECTED
