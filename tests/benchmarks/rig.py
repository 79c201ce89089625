"""What the workloads run on: a stack of its own, schedules by the thousand, what became of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.acceptance.bulk import ScheduleCopier, Spread, one_shot
from tests.acceptance.stack import Stack, Tenant, time_in, until
from tests.benchmarks import tasks
from tests.benchmarks.figures import lateness
from tests.benchmarks.machine import Spent
from tests.benchmarks.starts import DRAIN_TIMEOUT, Starts, taken
from tests.rig.servers import Servers
from tests.rig.task_plugins import install

from harebell.dev.plan import ServiceCounts, ServiceKind

HORIZON: Final = "5.8s"  # just above a tier; the product's own makes every sample wait for it
BEHIND: Final = 2.0  # seconds from the beginning of loading to staging, which is part of the sample
LOADED: Final = 20_000  # schedules a second, on a machine that is slow
FULL_HORIZON: Final = "84s"
FAR: Final = 86_400.0
NEVER: Final = 300 * 86_400.0  # seconds until a model is due
TASK: Final = {"task": {"name": "bench.start"}}
FAILS_ONCE: Final = {"task": {"name": "bench.fail_once"}}
HOLDS: Final = {"task": {"name": "bench.hold"}}
_TASKS: Final = {
    f"bench.{task.__name__}": f"{tasks.__name__}:{task.__name__}"
    for task in (tasks.start, tasks.fail_once, tasks.hold)
}

_DRAINED: Final = """
SELECT NOT EXISTS (SELECT FROM schedule_state WHERE next_at <= $1)  -- all are staged
   AND NOT EXISTS (SELECT FROM runs WHERE finished_at IS NULL AND due_at <= $1)
"""
_RECORD: Final = """
SELECT count(*) AS runs, count(*) FILTER (WHERE state = 'succeeded') AS settled,
       (SELECT count(*) FROM attempts a JOIN runs o USING (scheduled_for, schedule_id)
        WHERE o.tenant = $1) AS attempts
FROM runs WHERE tenant = $1
"""
When: TypeAlias = Callable[[int, datetime], dict[str, str]]  # of a number and its first instant


@dataclass(frozen=True)
class Scale:
    """How much is measured. `times`: each, for the least, the median and the most."""

    times: int = 3
    full: bool = False


@dataclass(frozen=True)
class Wave:
    """Runs that are due evenly from `first` to `last`."""

    tenant: Tenant
    number: int
    first: datetime
    last: datetime


@dataclass
class Rig:
    """`settings`: of every service."""

    stack: Stack
    starts: Path
    settings: dict[str, str]
    horizon: float  # seconds
    counts: ServiceCounts = field(default_factory=ServiceCounts)
    _names: Iterator[int] = field(default_factory=count)

    @classmethod
    @contextmanager
    def open(cls, root: Path, *, horizon: str = HORIZON, **settings: str) -> Iterator["Rig"]:
        starts = root / "starts"
        starts.mkdir(parents=True)
        environment = {
            tasks.FOLDER: str(starts),
            "HAREBELL_HORIZON": horizon,
            "HAREBELL_LOG_LEVEL": "warning",
            **install(root / "plugin", "benchmarks", _TASKS),
            **settings,
        }
        with Servers.open(root / "servers") as servers, Stack.open(servers, root / "stack") as it:
            yield cls(it, starts, environment, float(horizon.removesuffix("s")))

    def start(self) -> None:
        self.stack.start(self.counts, **self.settings)

    def start_one(self, kind: ServiceKind, number: int, **settings: str) -> str:
        """Its name."""
        return self.stack.start_one(kind, number, ready=True, **self.settings, **settings).name

    def stop(self, *names: str) -> None:
        self.stack.stop(*names)

    @asynccontextmanager
    async def tenant(self) -> AsyncIterator[Tenant]:
        """A new one: what it has in the ledger is of one sample."""
        async with self.stack.tenant(f"sample-{next(self._names)}") as tenant:
            yield tenant

    async def load(
        self,
        tenant: Tenant,
        number: int,
        *,
        ahead: float | None = None,
        later: float = 0,
        rate: float | None = None,
        when: When = one_shot,
        target: Mapping[str, Any] = TASK,
        **more: Any,  # any other field of a schedule
    ) -> Wave:
        """Schedules in the tables, unstaged; all due at one instant, or so many a second.

        The first `ahead` seconds from now, or so long that all are there before staging begins.
        """
        await tenant.put("model", {"at": time_in(NEVER).isoformat()}, target, **more)
        copier = ScheduleCopier(tenant.ledger, tenant.name, "model", when, paused=None)
        accepted_at = await copier.accepted_at()
        step = timedelta(0) if rate is None else timedelta(seconds=1 / rate)
        seconds = later + (self.horizon + BEHIND + number / LOADED if ahead is None else ahead)
        first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        soonest = first - accepted_at.replace(microsecond=0)
        spread = Spread(soonest, step, first=0)
        await copier.create_copies(range(number), spread)
        await tenant.put("look", {"at": time_in(NEVER).isoformat()}, target)  # wakes the ticker
        return Wave(tenant, number, first, spread.due(number - 1, accepted_at))

    def spent(self) -> Spent:
        """By service and by server."""
        return Spent.by(self.pids())

    def pids(self) -> dict[str, int]:
        """Of what lives now."""
        private = self.stack.servers.private
        assert private is not None, "the CPU of servers that others use tells nothing"
        pids = {"broker": _pid(private.broker), "database": _pid(private.database)}
        living = self.stack.services.processes.processes()
        return pids | {name: process.pid for name, process in sorted(living.items())}

    async def until(self, moment: datetime) -> None:
        await asyncio.sleep((moment - datetime.now(UTC)).total_seconds())

    async def drained(self, wave: Wave, *, within: float = DRAIN_TIMEOUT) -> float:
        """When everything that was due was on the record, in seconds since 1970."""

        async def is_drained() -> bool:
            return bool(await wave.tenant.ledger.fetchval(_DRAINED, wave.last))

        await until(is_drained, within=within, what="the end of the backlog")
        return time.time()

    async def started(self, number: int) -> Starts:
        """Due and started, of every attempt since the last time; in the order of starts."""
        return await taken(self.starts, number)

    async def on_record(self, wave: Wave, attempts: int = 1) -> dict[str, int]:
        """Raises unless every run was claimed `attempts` times and settled once."""
        row = await wave.tenant.ledger.fetchrow(_RECORD, wave.tenant.name)
        told = {"claimed": row["attempts"], "settled": row["settled"]}
        assert told == {"claimed": wave.number * attempts, "settled": wave.number}, told
        return told


def late(starts: Starts) -> dict[str, float]:
    return lateness([started - due for due, started in starts])


def _pid(server: Any) -> int:  # a broker or a database
    process = server.daemons[0].process
    assert process is not None
    return int(process.pid)
