"""Maintenance: the retention of dead letters, replay jobs and failure groups."""

import asyncio
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.store import retention
from harebell.runtime.settings import DlqInspectorSettings
from harebell.storage.engine import translate_db_errors

MAINTENANCE_INTERVAL: Final = 60.0  # seconds
MAX_BATCHES: Final = 200  # of each rule at a time, which is 100,000 dead letters per minute
AGE: Final = "age"
SIZE: Final = "size"

log = structlog.get_logger()


async def run_maintenance(pool: asyncpg.Pool, settings: DlqInspectorSettings) -> None:
    """Apply the retention regularly until the task is cancelled."""
    for reason in (AGE, SIZE):
        metrics.DEAD_LETTERS_DELETED.labels(reason)  # a rate ignores the first value of a series
    has_moved = False
    while True:
        try:
            if not has_moved:
                await move_unowned(pool)
                has_moved = True
            await apply_retention(pool, settings)
        except Transient as error:
            log.warning("dead letter maintenance failed", reason=error.reason)
        await asyncio.sleep(MAINTENANCE_INTERVAL)


async def move_unowned(pool: asyncpg.Pool) -> None:
    """Move the dead letters that name no tenant to the operators.

    The last dlq_inspector of an upgrade starts after the end of the last older one.
    """
    with translate_db_errors():
        async with pool.acquire() as connection:
            moved = await retention.move_unowned(connection)
    if moved:
        log.warning("dead letters moved to the operators", count=moved)


async def apply_retention(pool: asyncpg.Pool, settings: DlqInspectorSettings) -> None:
    """Delete the old and the surplus dead letters, then ended replay jobs and empty groups."""
    max_age, max_count = settings.dead_letter_retention, settings.dead_letter_max_count
    with translate_db_errors():
        async with pool.acquire() as connection:
            for _ in range(MAX_BATCHES):
                old = await retention.delete_old(connection, max_age)
                surplus = await retention.delete_surplus(connection, max_count)
                if not old + surplus:
                    break
                metrics.DEAD_LETTERS_DELETED.labels(AGE).inc(old)
                metrics.DEAD_LETTERS_DELETED.labels(SIZE).inc(surplus)
                log.warning("dead letters deleted", old=old, surplus=surplus)
            await retention.delete_ended_jobs_and_empty_groups(connection, max_age)
