"""The ticker process: consumers of commands and events, and the loops beside them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from harebell.bootstrap.parts import ServiceParts
from harebell.bootstrap.service_context import ServiceContext, open_service
from harebell.messaging.accepted_messages import (
    CommandReplies,
    granting_credits,
    split_messages,
    tenant_of,
)
from harebell.messaging.consumer import Consumer, OrderedWorker
from harebell.messaging.fair_worker import ParallelWorker
from harebell.messaging.isolation import isolating
from harebell.messaging.topology.bus import BREAKERS, OUTCOMES, REPORTS, TICKER
from harebell.runtime.retries import retry_until_available
from harebell.runtime.settings import TickerSettings
from harebell.runtime.tzdata import tzdata_version
from harebell.storage.tenant_usage import UsageWriter
from harebell.ticker.backlog import BacklogMetrics
from harebell.ticker.breakers import BreakerRecorder
from harebell.ticker.commands.apply import CommandApplier
from harebell.ticker.completions import CompletionWatcher
from harebell.ticker.held_snapshots import HeldSnapshotMetrics
from harebell.ticker.maintenance import record_tzdata_version, run_maintenance
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.next_times import NextTimes
from harebell.ticker.overdue_schedules import OverdueSearch
from harebell.ticker.planned_runs import PlannedRunsMetrics
from harebell.ticker.reconciler import Reconciler
from harebell.ticker.recovery.executor_liveness import ExecutorLiveness
from harebell.ticker.recovery.rescuer import Rescuer
from harebell.ticker.reports import ReportHandler
from harebell.ticker.retention import Retention
from harebell.ticker.stager import Stager
from harebell.ticker.store.schedule_counts import ScheduleCounts
from harebell.ticker.store.versions import VersionCache

COMMAND_PREFETCH: Final = 500  # unacknowledged messages of accepted commands
GATHER_TIME: Final = 0.005  # seconds to wait for further outcomes of a transaction
BREAKERS_PREFETCH: Final = 20  # commands and events, handled one at a time


async def serve(settings: TickerSettings, stop: asyncio.Event) -> None:
    """Run the ticker until `stop` is set."""
    async with open_service(settings, "ticker", stop) as context:
        liveness = ExecutorLiveness(settings)
        parts = ticker_parts(settings, context, liveness)
        await retry_until_available(
            stop, lambda: record_tzdata_version(context.pool, tzdata_version())
        )
        try:
            await parts.run(context)
        finally:
            await liveness.close()


def ticker_parts(
    settings: TickerSettings, context: ServiceContext, liveness: ExecutorLiveness
) -> ServiceParts:
    """Build the consumers and the loops of a ticker."""
    pool, publisher, clock = context.pool, context.publisher, context.clock
    versions, next_times = VersionCache(), NextTimes()
    watcher = CompletionWatcher(pool=pool, publisher=publisher, clock=clock)

    def observe_reconciled(records: Sequence[ScheduleRecord]) -> None:
        watcher.observe(records)
        next_times.observe(record.next_at for record in records)

    reconciler = Reconciler(
        pool=pool,
        publisher=publisher,
        clock=clock,
        versions=versions,
        horizon=settings.horizon,
        on_saved=observe_reconciled,
    )

    def observe(records: Sequence[ScheduleRecord]) -> None:
        reconciler.observe(records)
        observe_reconciled(records)

    stager = Stager(
        pool=pool,
        publisher=publisher,
        clock=clock,
        versions=versions,
        horizon=settings.horizon,
        batch=settings.staging_batch,
        min_poll_interval=settings.min_poll_interval.total_seconds(),
        next_times=next_times,
        on_saved=observe,
    )
    usage = UsageWriter(pool)
    replies = CommandReplies(context.replies, settings.identity_mode)
    applier = CommandApplier(
        pool=pool,
        publisher=publisher,
        clock=clock,
        versions=versions,
        horizon=settings.horizon,
        on_saved=observe,
        replies=replies,
        schedule_counts=ScheduleCounts(context.policies),
        usage=usage.counts,
    )
    rescuer = Rescuer(
        pool=pool,
        publisher=publisher,
        clock=clock,
        liveness=liveness,
        request_reconciliation=reconciler.request,
        retry_min_wait=context.policies.retry_min_wait,
    )
    report_handler = ReportHandler(
        pool=pool,
        publisher=publisher,
        clock=clock,
        replies=replies,
        request_reconciliation=reconciler.request,
        retry_min_wait=context.policies.retry_min_wait,
    )
    recorder = BreakerRecorder(pool=pool, publisher=publisher, replies=replies, clock=clock)
    worker = partial(
        OrderedWorker,
        acknowledger=context.acknowledger,
        limit=COMMAND_PREFETCH,
        gather_time=GATHER_TIME,
    )
    isolated = partial(isolating, answer=replies.answer, split=split_messages)
    commands = Consumer(
        TICKER.name,
        context.connect,
        partial(
            ParallelWorker,
            # Intake sends batches under load, and a single `now` must not wait for others.
            partial(worker, gather_time=0),
            granting_credits(isolated(applier.handle), publisher),
            tenant_of,
        ),
        prefetch=COMMAND_PREFETCH,
        accepts=context.is_from_service,
        needs_idle_check=False,
    )
    outcomes = Consumer(
        OUTCOMES.name,
        context.connect,
        partial(worker, reconciler.handle_outcomes),
        prefetch=COMMAND_PREFETCH,
        accepts=context.is_from_service,
    )
    reports = Consumer(
        REPORTS.name,
        context.connect,
        # A flood of reports of one tenant delays the leases of no other tenant.
        partial(
            ParallelWorker,
            worker,
            granting_credits(isolated(report_handler.handle), publisher),
            tenant_of,
        ),
        prefetch=COMMAND_PREFETCH,
        accepts=context.is_from_service,
    )
    breakers = Consumer(
        BREAKERS.name,
        context.connect,
        partial(worker, isolating(recorder.handle, replies.answer), limit=1, gather_time=0),
        prefetch=BREAKERS_PREFETCH,
        accepts=context.is_from_service,
        needs_idle_check=False,
    )
    return ServiceParts(
        consumers={
            TICKER.name: commands,
            OUTCOMES.name: outcomes,
            REPORTS.name: reports,
            BREAKERS.name: breakers,
        },
        loops={
            "stager": stager.run,
            "reconciler": reconciler.run,
            "completions": watcher.run,
            "lease_recovery": rescuer.run_lease_recovery,
            "ticket_recovery": rescuer.run_ticket_recovery,
            "overdue_schedules": OverdueSearch(pool, next_times).run,
            "backlog": BacklogMetrics(pool).run,
            "held_snapshots": HeldSnapshotMetrics(pool).run,
            "planned_runs": PlannedRunsMetrics(pool=pool, clock=clock).run,
            "breakers": recorder.run,
            "usage": usage.run,
            "maintenance": partial(run_maintenance, pool),
            "retention": Retention(pool=pool, settings=settings, policies=context.policies).run,
        },
    )
