"""The ticker's shell: staging, changes, sweeps and housekeeping, side by side."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.kernel.amqp.session import Consumer, OrderedWorker
from harebell.kernel.bus import BREAKERS, OUTCOMES, TICKER
from harebell.kernel.db.engine import translate_db_errors
from harebell.kernel.db.ledger import limits
from harebell.kernel.db.partitions import ENSURE
from harebell.kernel.lifecycle import open_service, retry_until_available, run_until
from harebell.kernel.settings import TickerSettings
from harebell.kernel.tzdata import tzdata_version
from harebell.ticker.backlog import BacklogMetrics
from harebell.ticker.breakers import BreakerRecorder
from harebell.ticker.changes import CommandApplier
from harebell.ticker.presence import ExecutorLiveness
from harebell.ticker.reviewer import Reconciler
from harebell.ticker.staging import Stager
from harebell.ticker.sweeping import Rescuer
from harebell.ticker.versions import VersionCache
from harebell.ticker.zones import record_tzdata_version

PREFETCH: Final = 500  # changes that wait to be applied
GATHER: Final = 0.005  # seconds for more changes to come into a transaction
BREAKERS_PREFETCH: Final = 20  # commands and facts, taken one at a time
HOUSEKEEPING_EVERY: Final = 3600.0  # seconds
FIRST_HOUSEKEEPING: Final = 10.0  # seconds after the start
COMMAND_RESULT_RETENTION: Final = timedelta(hours=24)  # for repeats of a command

_FORGET: Final = "DELETE FROM commands WHERE created_at < now() - $1::interval"

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
            OrderedWorker, changes.handle, parts.settler, limit=PREFETCH, linger=GATHER
        )
        consumer = Consumer(TICKER.name, parts.connect, worker, prefetch=PREFETCH, looks=False)
        hints = partial(
            OrderedWorker, reviewer.on_outcomes, parts.settler, limit=PREFETCH, linger=GATHER
        )
        outcomes = Consumer(OUTCOMES.name, parts.connect, hints, prefetch=PREFETCH)
        breakers = BreakerRecorder(*own)
        orders = partial(OrderedWorker, breakers.handle, parts.settler, limit=1, linger=0)
        ordered = Consumer(
            BREAKERS.name, parts.connect, orders, prefetch=BREAKERS_PREFETCH, looks=False
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
                    parts.keep(),
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


async def run_maintenance(pool: asyncpg.Pool) -> None:
    """Partitions ahead of time; answers and limits that nobody will ask for. Until cancelled."""
    await asyncio.sleep(FIRST_HOUSEKEEPING)
    while True:
        try:
            with translate_db_errors():
                await pool.execute(ENSURE)
                await pool.execute(_FORGET, COMMAND_RESULT_RETENTION)
                await limits.delete_expired(pool)
        except Transient as error:
            log.warning("housekeeping failed", reason=error.reason)
        await asyncio.sleep(HOUSEKEEPING_EVERY)
