"""`python -m harebell.intake`."""

import asyncio
import os
from typing import Final

from harebell.intake.service import Commands, Queries
from harebell.intake.store import Store
from harebell.kernel.amqp.session import Concurrent, Consumer, Ordered
from harebell.kernel.bus import INTAKE, QUERY
from harebell.kernel.db.engine import open_engine
from harebell.kernel.lifecycle import open_parts, run_until, start
from harebell.kernel.settings import IntakeSettings

BATCH: Final = 100  # messages checked, then published together
PREFETCH: Final = 2 * BATCH  # the next batch is at hand when one is done
QUERIES_AT_ONCE: Final = 20


async def serve(settings: IntakeSettings, stop: asyncio.Event) -> None:
    engine = open_engine(settings.database_url.get_secret_value(), name=settings.name)
    async with open_parts(settings, "intake", stop) as parts:
        door = Commands(parts.publisher, parts.clock, settings.allowed_networks)
        desk = Queries(parts.publisher, parts.clock, Store(engine))
        commands = Consumer(
            INTAKE.name,
            parts.connect,
            lambda: Ordered(door.handle, parts.settler, limit=BATCH, linger=0),
            prefetch=PREFETCH,
        )
        queries = Consumer(
            QUERY.name,
            parts.connect,
            lambda: Concurrent(desk.handle, parts.settler),
            prefetch=QUERIES_AT_ONCE,
        )
        parts.health.check("commands", lambda: commands.is_consuming)
        parts.health.check("queries", lambda: queries.is_consuming)
        try:
            await run_until(
                stop,
                consuming=[commands.run(stop), queries.run(stop)],
                background=[parts.clock.keep()],
            )
        finally:
            await engine.dispose()


if __name__ == "__main__":
    start(IntakeSettings, "intake", serve, os.environ)
