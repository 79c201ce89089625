"""What the desk does by itself now and then: groups for letters of older releases, retention."""

import asyncio
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.store import retention
from harebell.runtime.settings import DlqInspectorSettings
from harebell.storage.engine import translate_db_errors

EVERY: Final = 60.0  # seconds
MAX_BATCHES: Final = 200  # of one kind at a time: 100,000 letters a minute

log = structlog.get_logger()


async def run_maintenance(pool: asyncpg.Pool, settings: DlqInspectorSettings) -> None:
    """Until cancelled."""
    for why in ("age", "size"):
        metrics.DEAD_LETTERS_DELETED.labels(why)  # a rate is blind to the first of a new series
    while True:
        try:
            await apply_retention(pool, settings)
        except Transient as error:
            log.warning("the desk is not put right", reason=error.reason)
        await asyncio.sleep(EVERY)


async def apply_retention(pool: asyncpg.Pool, settings: DlqInspectorSettings) -> None:
    """The same, of what is too old or too much."""
    keep, most = settings.dead_letter_retention, settings.dead_letter_max_count
    with translate_db_errors():
        async with pool.acquire() as connection:
            for _ in range(MAX_BATCHES):
                old = await retention.delete_old(connection, keep)
                beyond = await retention.delete_beyond(connection, most)
                if not old + beyond:
                    break
                metrics.DEAD_LETTERS_DELETED.labels("age").inc(old)
                metrics.DEAD_LETTERS_DELETED.labels("size").inc(beyond)
                log.warning("dead letters deleted", too_old=old, too_many=beyond)
            await retention.delete_records(connection, keep)
