"""The reports of workers: heartbeats renew leases, and other reports end delegated runs."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.commands import (
    REPORT_COMMANDS,
    RunComplete,
    RunFail,
    RunHeartbeat,
    RunReport,
)
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.message import parse
from harebell.contract.responses import RunResponse
from harebell.domain.progress import ProgressEventLimit
from harebell.domain.retry import NO_WAIT, no_min_wait
from harebell.domain.run_states import AttemptCompletion, ReportedRun, RunState
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.ledger.run_completion import complete_and_publish
from harebell.messaging.accepted_messages import CommandReplies
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import progress_event, run_event
from harebell.runtime import failpoint
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import delegation
from harebell.storage.runs.delegation import ReportRef
from harebell.storage.runs.staging import rebuild_tickets
from harebell.ticker.commands.batch import BatchItem, CommandBatch, messages_or_outcome
from harebell.ticker.commands.events import send_replies
from harebell.ticker.model.report import (
    COMPLETED,
    RENEWED,
    completion_of_report,
    is_valid,
    response_without_effect,
)

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class WorkerReport:
    """One report of a worker, and the item that receives its response."""

    item: BatchItem
    command: RunReport
    ref: ReportRef

    @property
    def is_heartbeat(self) -> bool:
        return isinstance(self.command, RunHeartbeat)

    @property
    def progress(self) -> dict[str, Any]:
        """The fields of the reported progress."""
        command = self.command
        return command.progress_fields() if isinstance(command, RunHeartbeat) else {}


@dataclass(slots=True, kw_only=True)
class ReportHandler:
    """The handler of `harebell.reports`. Any number may run, because each row decides once."""

    pool: asyncpg.Pool
    publisher: Publisher
    replies: CommandReplies
    clock: Clock
    request_reconciliation: Callable[[Iterable[UUID]], None]
    retry_min_wait: Callable[[str], timedelta | None] = no_min_wait  # of a tenant
    event_limit: ProgressEventLimit = field(default_factory=ProgressEventLimit)

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Apply the reports of a batch and reply to them.

        After a crash, RabbitMQ delivers the batch again. The reports that have ended an attempt
        are then repeats, and a second renewal of a lease is harmless.
        """
        batch, reports = read_reports(deliveries)
        with translate_db_errors():
            await self._renew([each for each in reports if isinstance(each.command, RunHeartbeat)])
            await self._end(
                [each for each in reports if not isinstance(each.command, RunHeartbeat)]
            )
        send_replies(self.replies, batch)
        _count(batch)
        return batch.outcomes

    async def _renew(self, heartbeats: Sequence[WorkerReport]) -> None:
        if not heartbeats:
            return
        progress: dict[ReportRef, dict[str, Any]] = {}
        for each in heartbeats:
            if fields := each.progress:
                progress[each.ref] = progress.get(each.ref, {}) | fields
        refs = [each.ref for each in heartbeats]
        renewed = await delegation.renew(self.pool, refs, progress)
        await self._publish_progress({ref: progress[ref] for ref in renewed if ref in progress})
        for each in heartbeats:
            if (renewal := renewed.get(each.ref)) is not None:
                response = RunResponse(
                    run_id=each.command.run_id,
                    status=RENEWED,
                    state=RunState.RUNNING,
                    lease_until=renewal.lease_until,
                    stop_reason=renewal.stop_reason,
                )
                each.item.set_response(response)
        await self._refuse([each for each in heartbeats if each.ref not in renewed])

    async def _publish_progress(self, progress: Mapping[ReportRef, Mapping[str, Any]]) -> None:
        now = monotonic()
        events = [
            progress_event(ref.tenant, ref.key, fields, at=self.clock.now())
            for ref, fields in progress.items()
            if self.event_limit.admits(ref.tenant, ref.key, now)
        ]
        await publish_events(self.publisher, events)

    async def _end(self, ends: Sequence[WorkerReport]) -> None:
        """End the attempts of valid reports, the first one of each run."""
        if not ends:
            return
        found = await delegation.find(self.pool, [each.ref for each in ends])
        first: dict[ReportRef, WorkerReport] = {}
        for each in ends:
            if is_valid(each.command, found.get(each.ref)):
                first.setdefault(each.ref, each)
        ended = await self._complete(first, found) if first else {}
        for ref, completion in ended.items():
            status = COMPLETED if completion.state is RunState.SUCCEEDED else completion.outcome
            report = first[ref]
            report.item.set_response(
                RunResponse(run_id=report.command.run_id, status=status, state=completion.state)
            )
        await self._refuse([each for each in ends if each.item.response is None])

    async def _complete(
        self, reports: dict[ReportRef, WorkerReport], found: dict[ReportRef, ReportedRun]
    ) -> dict[ReportRef, AttemptCompletion]:
        """Record the attempts with everything that follows, and publish their events."""
        by_key = {ref.key: ref for ref in reports}
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            tickets = await rebuild_tickets(transaction.connection, sorted(by_key))
            now = self.clock.now()
            completed = []
            for ticket in tickets:
                ref = by_key[ticket.run_key]
                command = reports[ref].command
                assert isinstance(command, RunComplete | RunFail)  # noqa: S101  # no heartbeat
                completion = completion_of_report(
                    command,
                    found[ref],
                    ticket,
                    now=now,
                    random_fraction=random.random(),  # noqa: S311  # jitter is no secret
                    min_wait=self.retry_min_wait(ref.tenant) or NO_WAIT,
                )
                completed.append((ticket, completion))
            recorded = await complete_and_publish(transaction, completed)
            await failpoint.reach("ticker.report_before_commit")
        await failpoint.reach("ticker.report_after_commit")
        self.request_reconciliation({key.schedule_id for key in recorded})
        events: list[OutgoingEvent] = [
            run_event(ticket, recorded[ticket.run_key], found[by_key[ticket.run_key]].attempt)
            for ticket, _ in completed
            if ticket.run_key in recorded
        ]
        await publish_events(self.publisher, events)
        return {by_key[key]: completion for key, completion in recorded.items()}

    async def _refuse(self, reports: Sequence[WorkerReport]) -> None:
        """Respond to the reports that changed nothing, by the rows that their runs have now."""
        if not reports:
            return
        found = await delegation.find(self.pool, [each.ref for each in reports])
        for each in reports:
            response = response_without_effect(each.command, found.get(each.ref))
            if isinstance(response, Rejected):
                each.item.reject(response)
                log.info("report rejected", run=each.command.run_id, error=response.code)
            else:
                each.item.set_response(response)


def read_reports(deliveries: Sequence[Delivery]) -> tuple[CommandBatch, list[WorkerReport]]:
    """Return the messages of the deliveries, and the reports that can be applied."""
    batch, reports = CommandBatch(), []
    for delivery in deliveries:
        messages = messages_or_outcome(delivery)
        if not isinstance(messages, list):
            batch.outcomes.append(messages)
            continue
        for message in messages:
            items = [BatchItem(message=message, accepted=each) for each in message.items]
            reports += [each for each in map(_report, items) if each is not None]
            batch.add(message, items)
        batch.outcomes.append(DONE)
    return batch, reports


def _report(item: BatchItem) -> WorkerReport | None:
    """Return the report of an item, or None for an item that is already rejected."""
    if item.accepted.rejection is not None:
        item.set_response(item.accepted.rejection)
        return None
    try:
        model = REPORT_COMMANDS.get(item.message.verb)
        if model is None:
            reason = f"The command must be a report, not {item.message.verb!r}."
            raise InvalidInput(reason, code="unknown_command")
        command = parse(model, item.accepted.body)
        key = RunKey.parse(command.run_id)
    except Rejected as error:
        item.reject(error)
        return None
    ref = ReportRef(key, command.fencing_token, item.message.tenant)
    return WorkerReport(item=item, command=command, ref=ref)


def _count(batch: CommandBatch) -> None:
    for message, items in batch.messages:
        results = Counter(
            "applied" if item.response is not None and item.response.ok else "rejected"
            for item in items
        )
        for result, count in results.items():
            runtime_metrics.COMMANDS.labels(message.verb, result).inc(count)
