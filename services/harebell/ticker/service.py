"""The ticker's shell: staging, changes, sweeps and housekeeping, side by side."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.kernel.amqp.session import Consumer, Ordered
from harebell.kernel.bus import BREAKERS, OUTCOMES, TICKER
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import limits
from harebell.kernel.db.partitions import ENSURE
from harebell.kernel.lifecycle import open_parts, patiently, run_until
from harebell.kernel.settings import TickerSettings
from harebell.kernel.tzdata import tzdata_version
from harebell.ticker.backlog import Backlog
from harebell.ticker.breakers import Breakers
from harebell.ticker.changes import Changes
from harebell.ticker.presence import Presence
from harebell.ticker.reviewer import Reviewer
from harebell.ticker.staging import Stager
from harebell.ticker.sweeping import Sweeper
from harebell.ticker.versions import Versions
from harebell.ticker.zones import note_release

PREFETCH: Final = 500  # changes that wait to be applied
GATHER: Final = 0.005  # seconds for more changes to come into a transaction
BREAKERS_PREFETCH: Final = 20  # commands and facts, taken one at a time
HOUSEKEEPING_EVERY: Final = 3600.0  # seconds
FIRST_HOUSEKEEPING: Final = 10.0  # seconds after the start
KEEP_ANSWERS: Final = timedelta(hours=24)  # for repeats of a command

_FORGET: Final = "DELETE FROM commands WHERE created_at < now() - $1::interval"

log = structlog.get_logger()


async def serve(settings: TickerSettings, stop: asyncio.Event) -> None:
    async with open_parts(settings, "ticker", stop) as parts:
        versions, wake = Versions(), asyncio.Event()
        presence = Presence(settings)
        own = (parts.pool, parts.publisher, parts.clock)
        reviewer = Reviewer(*own, versions, settings.horizon, wake)
        stager = Stager(
            *(*own, versions, settings.horizon, settings.staging_batch),
            *(settings.pass_gap.total_seconds(), wake, reviewer.note),
        )
        changes = Changes(*own, versions, settings.horizon, wake, reviewer.note)
        sweeper = Sweeper(*own, presence, reviewer.ask)
        worker = partial(Ordered, changes.handle, parts.settler, limit=PREFETCH, linger=GATHER)
        consumer = Consumer(TICKER.name, parts.connect, worker, prefetch=PREFETCH, looks=False)
        hints = partial(Ordered, reviewer.on_outcomes, parts.settler, limit=PREFETCH, linger=GATHER)
        outcomes = Consumer(OUTCOMES.name, parts.connect, hints, prefetch=PREFETCH)
        breakers = Breakers(*own)
        orders = partial(Ordered, breakers.handle, parts.settler, limit=1, linger=0)
        ordered = Consumer(
            BREAKERS.name, parts.connect, orders, prefetch=BREAKERS_PREFETCH, looks=False
        )
        await patiently(stop, lambda: note_release(parts.pool, tzdata_version()))
        parts.health.check("changes", lambda: consumer.is_consuming)
        try:
            await run_until(
                stop,
                consuming=[consumer.run(stop), outcomes.run(stop), ordered.run(stop)],
                background=[
                    parts.keep(),
                    stager.run(),
                    reviewer.run(),
                    sweeper.keep_leases(),
                    sweeper.keep_lost(),
                    Backlog(parts.pool).keep(),
                    breakers.keep(),
                    keep_house(parts.pool),
                ],
            )
        finally:
            await presence.close()


async def keep_house(pool: asyncpg.Pool) -> None:
    """Partitions ahead of time; answers and limits that nobody will ask for. Until cancelled."""
    await asyncio.sleep(FIRST_HOUSEKEEPING)
    while True:
        try:
            with passing_faults():
                await pool.execute(ENSURE)
                await pool.execute(_FORGET, KEEP_ANSWERS)
                await limits.forget(pool)
        except Transient as error:
            log.warning("housekeeping failed", reason=error.reason)
        await asyncio.sleep(HOUSEKEEPING_EVERY)
