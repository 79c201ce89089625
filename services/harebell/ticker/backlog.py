"""What is due and has not begun, for alarms and for whoever adds executors."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.storage.engine import translate_db_errors
from harebell.ticker import metrics

REFRESH_INTERVAL: Final = 5.0  # seconds between looks
MAX_COUNTED: Final = 20_000  # runs, and schedules, of one look; more are as alarming
MAX_LANES: Final = 300  # that are shown: pools are named by users

# Held by the one index on open rows. What waits its turn is not waiting for an executor.
_RUNS: Final = """
WITH due AS (
    SELECT pool, lane, coalesce(next_attempt_at, due_at) AS at FROM runs
    WHERE finished_at IS NULL AND due_at < now()
      AND CASE WHEN state IN ('staged', 'retrying') AND reason IS DISTINCT FROM 'waiting_for_overlap'
               THEN coalesce(next_attempt_at, due_at) < now() ELSE false END
    LIMIT $1
)
SELECT pool, lane, count(*) AS runs, extract(epoch FROM now() - min(at))::float8 AS age
FROM due GROUP BY pool, lane ORDER BY runs DESC LIMIT $2
"""
# In order, and so by the index: without statistics a plan would read every schedule there is.
_SCHEDULES: Final = """
SELECT count(*) FROM (
    SELECT FROM schedule_state WHERE next_at < now() ORDER BY next_at LIMIT $1
) AS overdue
"""
log = structlog.get_logger()


async def count_due_runs(pool: asyncpg.Pool) -> dict[tuple[str, str], tuple[int, float]]:
    """By pool and lane: how many runs, and for how many seconds the oldest of them is due."""
    rows = await pool.fetch(_RUNS, MAX_COUNTED, MAX_LANES)
    return {(row["pool"], row["lane"]): (row["runs"], row["age"]) for row in rows}


async def count_overdue_schedules(pool: asyncpg.Pool) -> int:
    """Schedules that owe something already."""
    counted: int = await pool.fetchval(_SCHEDULES, MAX_COUNTED)
    return counted


@dataclass(slots=True)
class BacklogMetrics:
    """Every ticker shows the same: whoever reads takes the highest."""

    pool: asyncpg.Pool
    _shown: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.refresh()
            except Transient as error:
                log.warning("backlog not counted", reason=error.reason)
            await asyncio.sleep(REFRESH_INTERVAL)

    async def refresh(self) -> None:
        """Raises `DatabaseUnavailable`."""
        with translate_db_errors():
            lanes = await count_due_runs(self.pool)
            metrics.OVERDUE_SCHEDULES.set(await count_overdue_schedules(self.pool))
        if len(self._shown | set(lanes)) > MAX_LANES:
            metrics.DUE_BACKLOG.clear()
            metrics.OLDEST_DUE_AGE.clear()
            self._shown.clear()
        self._shown |= set(lanes)
        for lane in self._shown:  # what has none any more is shown as none
            runs, age = lanes.get(lane, (0, 0.0))
            metrics.DUE_BACKLOG.labels(*lane).set(runs)
            metrics.OLDEST_DUE_AGE.labels(*lane).set(age)
