"""The ticker's shell: staging, changes, sweeps and housekeeping, side by side."""

import asyncio
from functools import partial
from typing import Final

import structlog

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import open_service
from harebell.messaging.consumer import Consumer, OrderedWorker
from harebell.messaging.topology.bus import BREAKERS, OUTCOMES, TICKER
from harebell.runtime.retries import retry_until_available
from harebell.runtime.settings import TickerSettings
from harebell.runtime.tzdata import tzdata_version
from harebell.ticker.backlog import BacklogMetrics
from harebell.ticker.breakers import BreakerRecorder
from harebell.ticker.commands.apply import CommandApplier
from harebell.ticker.maintenance import record_tzdata_version, run_maintenance
from harebell.ticker.reconciler import Reconciler
from harebell.ticker.recovery.executor_liveness import ExecutorLiveness
from harebell.ticker.recovery.rescuer import Rescuer
from harebell.ticker.stager import Stager
from harebell.ticker.store.versions import VersionCache

COMMAND_PREFETCH: Final = 500  # changes that wait to be applied
GATHER_TIME: Final = 0.005  # seconds for more changes to come into a transaction
BREAKERS_PREFETCH: Final = 20  # commands and facts, taken one at a time

log = structlog.get_logger()


async def serve(settings: TickerSettings, stop: asyncio.Event) -> None:
    async with open_service(settings, "ticker", stop) as parts:
        versions, wake = VersionCache(), asyncio.Event()
        presence = ExecutorLiveness(settings)
        own = (parts.pool, parts.publisher, parts.clock)
        reviewer = Reconciler(*own, versions, settings.horizon, wake)
        stager = Stager(
            *(*own, versions, settings.horizon, settings.staging_batch),
            *(settings.min_poll_interval.total_seconds(), wake, reviewer.observe),
        )
        changes = CommandApplier(*own, versions, settings.horizon, wake, reviewer.observe)
        sweeper = Rescuer(*own, presence, reviewer.request)
        worker = partial(
            OrderedWorker,
            changes.handle,
            parts.acknowledger,
            limit=COMMAND_PREFETCH,
            gather_time=GATHER_TIME,
        )
        consumer = Consumer(
            TICKER.name, parts.connect, worker, prefetch=COMMAND_PREFETCH, needs_idle_check=False
        )
        hints = partial(
            OrderedWorker,
            reviewer.on_outcomes,
            parts.acknowledger,
            limit=COMMAND_PREFETCH,
            gather_time=GATHER_TIME,
        )
        outcomes = Consumer(OUTCOMES.name, parts.connect, hints, prefetch=COMMAND_PREFETCH)
        breakers = BreakerRecorder(*own)
        orders = partial(OrderedWorker, breakers.handle, parts.acknowledger, limit=1, gather_time=0)
        ordered = Consumer(
            BREAKERS.name, parts.connect, orders, prefetch=BREAKERS_PREFETCH, needs_idle_check=False
        )
        await retry_until_available(
            stop, lambda: record_tzdata_version(parts.pool, tzdata_version())
        )
        parts.health.check("changes", lambda: consumer.is_consuming)
        try:
            await run_until(
                stop,
                consuming=[consumer.run(stop), outcomes.run(stop), ordered.run(stop)],
                background=[
                    parts.run(),
                    stager.run(),
                    reviewer.run(),
                    sweeper.run_lease_recovery(),
                    sweeper.run_ticket_recovery(),
                    BacklogMetrics(parts.pool).run(),
                    breakers.run(),
                    run_maintenance(parts.pool),
                ],
            )
        finally:
            await presence.close()
