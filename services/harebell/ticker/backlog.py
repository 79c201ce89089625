"""Metrics of the backlog: due runs that have not started."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.runtime.clock import monotonic
from harebell.storage.engine import translate_db_errors
from harebell.ticker import metrics
from harebell.ticker.read_pauses import pause_after_read

REFRESH_INTERVAL: Final = 8.0  # seconds
MAX_REFRESH_INTERVAL: Final = 60.0  # seconds
MAX_COUNTED: Final = 20_000  # runs in one refresh
MAX_LANES: Final = 300  # label pairs: users choose the names of pools


# The index of open rows finds these rows. A run that waits for an overlap slot does not wait for an
# executor.
DUE_RUNS: Final = """
WITH due AS (
    SELECT pool, lane, coalesce(next_attempt_at, due_at) AS at FROM runs
    WHERE finished_at IS NULL AND due_at < now()
      AND CASE WHEN state IN ('staged', 'retrying')
                AND coalesce(reason, '') NOT IN ('waiting_for_overlap', 'waiting_for_label')
               THEN coalesce(next_attempt_at, due_at) < now() ELSE false END
    LIMIT $1
)
SELECT pool, lane, count(*) AS runs, extract(epoch FROM now() - min(at))::float8 AS age
FROM due GROUP BY pool, lane ORDER BY runs DESC LIMIT $2
"""
log = structlog.get_logger()


async def count_due_runs(pool: asyncpg.Pool) -> dict[tuple[str, str], tuple[int, float]]:
    """Return the number of due runs and the age of the oldest [s], by pool and lane."""
    rows = await pool.fetch(DUE_RUNS, MAX_COUNTED, MAX_LANES)
    return {(row["pool"], row["lane"]): (row["runs"], row["age"]) for row in rows}


@dataclass(slots=True)
class BacklogMetrics:
    """The refresh of the backlog metrics. Every ticker shows the same values."""

    pool: asyncpg.Pool
    _shown: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        """Refresh the metrics until the task is cancelled."""
        while True:
            began = monotonic()
            try:
                await self.refresh()
            except Transient as error:
                log.warning("backlog count failed", error=error.code, reason=error.reason)
            duration = monotonic() - began
            await asyncio.sleep(
                pause_after_read(duration, shortest=REFRESH_INTERVAL, longest=MAX_REFRESH_INTERVAL)
            )

    async def refresh(self) -> None:
        """Count the backlog and set the metrics. Raise `DatabaseUnavailable`."""
        with translate_db_errors():
            lanes = await count_due_runs(self.pool)
        if len(self._shown | set(lanes)) > MAX_LANES:
            metrics.DUE_BACKLOG.clear()
            metrics.OLDEST_DUE_AGE.clear()
            self._shown.clear()
        self._shown |= set(lanes)
        for lane in self._shown:  # a lane without due runs shows 0 instead of its last value
            runs, age = lanes.get(lane, (0, 0.0))
            metrics.DUE_BACKLOG.labels(*lane).set(runs)
            metrics.OLDEST_DUE_AGE.labels(*lane).set(age)
