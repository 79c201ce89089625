"""The table `tenant_usage`: the counts of tenants by minute, which intake and the ticker write."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.domain.usage_counts import UsageCounts, UsageKey
from harebell.storage.engine import translate_db_errors

WRITE_INTERVAL: Final = 2.0  # seconds; a crash loses the counts of this time
RETENTION: Final = timedelta(hours=2)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class UsageStatements:
    """The statements of this module."""

    add: str
    delete_expired: str


# The order of the rows is the order of their locks, so two services cannot wait for each other.
STATEMENTS: Final = UsageStatements(
    add="""
INSERT INTO tenant_usage AS u (minute, tenant, rule, code, number)
SELECT date_trunc('minute', now()), * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
ORDER BY 2, 3, 4
ON CONFLICT (minute, tenant, rule, code) DO UPDATE SET number = u.number + excluded.number
""",
    delete_expired="DELETE FROM tenant_usage WHERE minute < now() - $1::interval",
)


async def add_counts(pool: asyncpg.Pool, numbers: Mapping[UsageKey, int]) -> None:
    """Add the numbers to the counts of this minute. Raise `DatabaseUnavailable`."""
    if not numbers:
        return
    tenants, rules, codes = zip(*numbers, strict=True)
    with translate_db_errors():
        await pool.execute(STATEMENTS.add, tenants, rules, codes, list(numbers.values()))


async def delete_expired(pool: asyncpg.Pool) -> None:
    """Delete the counts that no query reads."""
    await pool.execute(STATEMENTS.delete_expired, RETENTION)


@dataclass(slots=True)
class UsageWriter:
    """The regular write of the counts of one service. No command waits for it."""

    pool: asyncpg.Pool
    counts: UsageCounts = field(default_factory=UsageCounts)

    async def run(self) -> None:
        """Write the counts until the task is cancelled."""
        while True:
            await asyncio.sleep(WRITE_INTERVAL)
            await self.write()

    async def write(self) -> None:
        """Write the counts. After a failure the counts stay for the next write.

        A failure after the commit counts twice, which a statistic permits.
        """
        numbers = self.counts.take()
        try:
            await add_counts(self.pool, numbers)
        except Transient as error:
            for key, number in numbers.items():
                self.counts.add(key, number)
            log.warning("usage not written", error=error.code, reason=error.reason)
        if self.counts.dropped:
            log.warning("usage dropped", number=self.counts.dropped)
            self.counts.dropped = 0
