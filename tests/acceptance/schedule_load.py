"""A stack with a million schedules, and what a wave of runs costs its ticker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from tests.acceptance.bulk import Copier, Spread
from tests.acceptance.record import Target
from tests.acceptance.stack import Stack, Tenant, instant, until

TENANT: Final = "crowd"
FEW: Final = 1_000  # schedules
MANY: Final = 1_000_000
WAVE: Final = 200  # schedules that are due soon
SOON: Final = timedelta(seconds=30)
APART: Final = timedelta(milliseconds=100)
A_YEAR: Final = 365 * 86_400.0  # seconds

_OFF: Final = "ALTER TABLE {} SET (autovacuum_enabled = off)"
_STAGED: Final = "SELECT count(*) FROM runs WHERE schedule_id = ANY($1)"
_TOUCHED: Final = """
SELECT sum(shared_blks_hit + shared_blks_read)::int FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND userid = (SELECT oid FROM pg_roles WHERE rolname = 'harebell_ticker')
"""


@dataclass(frozen=True)
class Process:
    """What a process takes, as the kernel counts it."""

    memory: int  # bytes in RAM
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        told = dict(line.split(":", 1) for line in lines)
        return cls(int(told["VmRSS"].split()[0]) * 1024, int(told["Threads"]))


@dataclass(frozen=True)
class Wave:
    """Schedules that come due one after the other. `blocks`: read by the ticker to stage them."""

    due: dict[UUID, datetime]
    ticker: Process
    blocks: int


@dataclass
class Crowd:
    """Statistics stay as they were before the load: plans must hold without them."""

    stack: Stack
    target: Target
    few: Wave | None = None  # before there were many

    @asynccontextmanager
    async def tenant(self) -> AsyncIterator[Tenant]:
        async with self.stack.tenant(TENANT) as tenant:
            yield tenant

    async def gather(self, count: int = MANY) -> None:
        """Returns when all runs, with a wave behind it from when there were few."""
        await asyncio.to_thread(self.stack.start)
        async with self.tenant() as tenant:
            for table in ("schedules", "schedule_versions", "schedule_state"):
                await tenant.ledger.execute(_OFF.format(table))
            await tenant.ledger.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            model = await self.model(tenant, "far")
            await model.multiply(range(FEW))
            self.few = await self.wave(tenant, FEW)
            await asyncio.to_thread(self.stack.stop)
            async with model.unindexed():
                await model.multiply(range(FEW + WAVE, count))
        await asyncio.to_thread(self.stack.start)

    async def model(self, tenant: Tenant, key: str) -> Copier:
        when = {"at": instant(A_YEAR).isoformat()}
        await tenant.put(key, when, self.target.http(TENANT), tags=["model"])
        return Copier(tenant.ledger, TENANT, key)

    async def wave(self, tenant: Tenant, first: int) -> Wave:
        """Returns when all of it is staged and nothing of it is due."""
        before = await tenant.ledger.fetchval(_TOUCHED)
        model = await self.model(tenant, f"wave-{first}")
        numbers = range(first, first + WAVE)
        spread = Spread(SOON, APART, first=first)
        await model.multiply(numbers, spread)
        await self.model(tenant, f"after-{first}")  # a change: the ticker looks again
        accepted_at = await model.accepted_at()
        due = {model.id_of(number): spread.due(number, accepted_at) for number in numbers}

        async def is_staged() -> bool:
            staged: int = await tenant.ledger.fetchval(_STAGED, list(due))
            return staged >= WAVE

        await until(is_staged, what="the wave")
        blocks = await tenant.ledger.fetchval(_TOUCHED) - before
        return Wave(due, self.ticker(), blocks)

    async def in_tiers(self) -> dict[str, int]:
        """Messages by tier: none until the broker has counted, which takes some seconds."""
        return await asyncio.to_thread(self.stack.waiting_in_tiers)

    def ticker(self) -> Process:
        process = self.stack.services.process("ticker-1")
        assert process is not None
        return Process.of(process.pid)
