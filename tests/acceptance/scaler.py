"""A scaler of executors by the metrics of one ticker, as a small program could be in production.

It starts executors for the runs that are planned or due, and stops them after an idle time.
"""

import asyncio
import math
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

POLL_INTERVAL = 1.0  # seconds
IDLE_TIME = 20.0  # seconds without planned or due runs, after which the executors stop


@dataclass(kw_only=True)
class Scaler:
    """The executors of one pool. `resize` starts or stops executors until that number runs."""

    metrics_url: str
    pool: str
    runs_per_executor: int
    max_executors: int
    resize: Callable[[int], None]
    within: str = "1m"
    executors: int = 0
    sizes: list[tuple[float, int]] = field(default_factory=list)  # the time of each change

    async def run(self) -> None:
        busy_at = time.monotonic()
        while True:
            runs = await asyncio.to_thread(self._runs)
            wanted = min(math.ceil(runs / self.runs_per_executor), self.max_executors)
            busy_at = time.monotonic() if wanted else busy_at
            is_idle = time.monotonic() - busy_at > IDLE_TIME
            if wanted > self.executors or (is_idle and self.executors):
                self.executors = wanted
                self.sizes.append((time.time(), wanted))
                await asyncio.to_thread(self.resize, wanted)
            await asyncio.sleep(POLL_INTERVAL)

    def _runs(self) -> float:
        with urllib.request.urlopen(self.metrics_url, timeout=5) as response:  # noqa: S310  # http
            families = text_string_to_metric_families(response.read().decode())
        samples = [sample for family in families for sample in family.samples]
        own = [sample for sample in samples if sample.labels.get("pool") == self.pool]
        planned = (each for each in own if each.labels.get("within") == self.within)
        backlog = (each for each in own if each.name == "harebell_due_backlog_runs")
        return sum(each.value for each in (*planned, *backlog))
