"""What the desk puts right by itself now and then: letters of older releases get their groups."""

import asyncio
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.dlq_inspector import groups
from harebell.kernel.db.engine import passing_faults

EVERY: Final = 60.0  # seconds
BATCH: Final = 500  # letters of one transaction

log = structlog.get_logger()


async def keep_house(pool: asyncpg.Pool) -> None:
    """Until cancelled."""
    while True:
        try:
            await put_right(pool)
        except Transient as error:
            log.warning("the desk is not put right", reason=error.reason)
        await asyncio.sleep(EVERY)


async def put_right(pool: asyncpg.Pool) -> None:
    """Raises `DatabaseUnavailable`; each batch stands by itself."""
    with passing_faults():
        async with pool.acquire() as connection:
            while grouped := await groups.group_some(connection, BATCH):
                log.info("dead letters grouped", number=grouped)
