"""A stack with a million schedules, and the cost of a wave of due runs for its ticker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from tests.acceptance.bulk import ScheduleCopier, Spread
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.rig.polling import until

TENANT: Final = "schedule-load"
FEW: Final = 1_000  # schedules
MANY: Final = 1_000_000
WAVE_SIZE: Final = 200  # schedules that are due soon
FIRST_DUE: Final = timedelta(seconds=30)
SPACING: Final = timedelta(milliseconds=100)
YEAR: Final = 365 * 86_400.0  # seconds

_WITHOUT_AUTOVACUUM: Final = "ALTER TABLE {} SET (autovacuum_enabled = off)"
_STAGED: Final = "SELECT count(*) FROM runs WHERE schedule_id = ANY($1)"
# The retention reads all schedules in slices, and the metric of planned runs has a cursor. Both are
# periodic and belong to no wave.
_BLOCKS_READ: Final = r"""
SELECT sum(shared_blks_hit + shared_blks_read)::int FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND userid = (SELECT oid FROM pg_roles WHERE rolname = 'harebell_ticker')
  AND query !~ 'schedule_id > \$|maintenance_leases|planned NO SCROLL|FROM planned'
"""


@dataclass(frozen=True)
class Process:
    """The memory and the threads of a process, as the kernel counts them."""

    memory: int  # bytes in RAM
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return cls(int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]))


@dataclass(frozen=True)
class Wave:
    """Schedules that become due one after the other.

    `blocks` is the number of database blocks that the ticker read to stage them.
    """

    due: dict[UUID, datetime]
    ticker: Process
    blocks: int


@dataclass
class ScheduleLoad:
    """A stack with many schedules.

    The tables keep the statistics of empty tables, because the plans must not depend on them.
    """

    stack: Stack
    target: Target
    initial_wave: Wave | None = None  # of the stack with FEW schedules

    @asynccontextmanager
    async def tenant(self) -> AsyncIterator[Tenant]:
        async with self.stack.tenant(TENANT) as tenant:
            yield tenant

    async def create(self, count: int = MANY) -> None:
        """Start the stack with FEW schedules, run one wave, then insert the other schedules."""
        await asyncio.to_thread(self.stack.start)
        async with self.tenant() as tenant:
            for table in ("schedules", "schedule_versions", "schedule_state"):
                await tenant.ledger.execute(_WITHOUT_AUTOVACUUM.format(table))
            await tenant.ledger.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            model = await self.model(tenant, "far")
            await model.create_copies(range(FEW))
            self.initial_wave = await self.wave(tenant, FEW)
            await asyncio.to_thread(self.stack.stop)
            async with model.unindexed():
                await model.create_copies(range(FEW + WAVE_SIZE, count))
        await asyncio.to_thread(self.stack.start)

    async def model(self, tenant: Tenant, key: str) -> ScheduleCopier:
        when = {"at": time_in(YEAR).isoformat()}
        await tenant.put(key, when, self.target.http(TENANT), tags=["model"])
        return ScheduleCopier(connection=tenant.ledger, tenant=TENANT, model=key)

    async def wave(self, tenant: Tenant, first: int) -> Wave:
        """Insert the schedules of a wave and wait until the ticker has staged them.

        None of the runs is due before this method returns.
        """
        before = await tenant.ledger.fetchval(_BLOCKS_READ)
        model = await self.model(tenant, f"wave-{first}")
        numbers = range(first, first + WAVE_SIZE)
        spread = Spread(FIRST_DUE, SPACING, first=first)
        await model.create_copies(numbers, spread)
        accepted_at = await model.accepted_at()
        due = {model.id_of(number): spread.due(number, accepted_at) for number in numbers}

        async def is_staged() -> bool:
            staged: int = await tenant.ledger.fetchval(_STAGED, list(due))
            return staged >= WAVE_SIZE

        await until(is_staged, what="the wave")
        blocks = await tenant.ledger.fetchval(_BLOCKS_READ) - before
        return Wave(due, self.ticker(), blocks)

    async def delay_queue_depths(self) -> dict[str, int]:
        """Return the messages in each delay queue. The broker needs some seconds to count them."""
        return await asyncio.to_thread(self.stack.delay_queue_depths)

    def ticker(self) -> Process:
        process = self.stack.services.process("ticker-1")
        assert process is not None
        return Process.of(process.pid)
