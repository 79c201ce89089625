"""Delegations: the start of a lease that belongs to a worker, before the call of the target."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.micro_batcher import MicroBatcher
from harebell.runtime.retries import backoff_delay
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import delegation

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Delegations:
    """The delegations of all lanes of an executor, with one statement for simultaneous runs."""

    pool: asyncpg.Pool
    clock: Clock
    _batcher: MicroBatcher[ClaimedRun, bool] = field(init=False)

    def __post_init__(self) -> None:
        self._batcher = MicroBatcher(self._delegate_batch)

    async def run(self) -> None:
        """Delegate runs until the task is cancelled."""
        await self._batcher.run()

    async def delegate(self, run: ClaimedRun) -> bool:
        """Give the lease of the run to its worker. Return False if the run must not start.

        The ledger has the delegation before the call, so no worker can be faster. After a crash
        before the call, the lease of the worker expires. While the database is unavailable, the
        wait ends with the lease of the run.
        """
        tries = 0
        while monotonic() < run.lease_ends:
            try:
                return await self._batcher.submit(run)
            except Transient as error:
                log.warning("delegation delayed", run=str(run.key), reason=error.reason)
                await asyncio.sleep(backoff_delay(tries))
                tries += 1
        return False

    async def _delegate_batch(self, runs: Sequence[ClaimedRun]) -> Sequence[bool]:
        now, sent_at = self.clock.now(), monotonic()
        delegated = [
            delegation.DelegatedRun(
                key=run.key,
                token=run.token,
                started_at=now,
                heartbeat=bounds.heartbeat.total_seconds(),
                max_duration=bounds.max_duration.total_seconds(),
            )
            for run in runs
            if (bounds := run.delegation) is not None
        ]
        with translate_db_errors():
            keys = await delegation.delegate(self.pool, delegated)
        metrics.SQL_ROWS.labels("delegate").observe(len(delegated))
        for run in runs:
            if run.key in keys:
                run.renewed_at = sent_at
        return [run.key in keys for run in runs]
