"""The rig of the workloads: a separate stack, thousands of schedules and their results."""

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
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.benchmarks import tasks
from tests.benchmarks.figures import lateness
from tests.benchmarks.machine import CpuTime
from tests.benchmarks.starts import DRAIN_TIMEOUT, Starts, take_starts
from tests.rig.polling import until
from tests.rig.servers import Servers
from tests.rig.task_plugins import install

from harebell.dev.plan import ServiceCounts, ServiceKind
from harebell.dev.spawn import start_process

HORIZON: Final = "5.8s"  # just above a delay; each sample would wait for the longer default horizon
LOAD_MARGIN: Final = (
    2.0  # seconds between the start of the load and the staging, which the sample includes
)
LOAD_RATE: Final = 20_000  # schedules a second, on a slow machine
FULL_HORIZON: Final = "84s"
FAR_FUTURE: Final = 86_400.0
MODEL_DUE: Final = 300 * 86_400.0  # seconds until the model schedule is due
START_TASK: Final = {"task": {"name": "bench.start"}}
FAIL_ONCE_TASK: Final = {"task": {"name": "bench.fail_once"}}
HOLD_TASK: Final = {"task": {"name": "bench.hold"}}
_TASKS: Final = {
    f"bench.{task.__name__}": f"{tasks.__name__}:{task.__name__}"
    for task in (tasks.start, tasks.fail_once, tasks.hold)
}

_DRAINED: Final = """
SELECT NOT EXISTS (SELECT FROM schedule_state WHERE next_at <= $1)  -- all are staged
   AND NOT EXISTS (SELECT FROM runs WHERE finished_at IS NULL AND due_at <= $1)
"""
_RECORD: Final = """
SELECT count(*) AS runs, count(*) FILTER (WHERE state = 'succeeded') AS completed,
       (SELECT count(*) FROM attempts a JOIN runs o USING (scheduled_for, schedule_id)
        WHERE o.tenant = $1) AS attempts
FROM runs WHERE tenant = $1
"""
When: TypeAlias = Callable[
    [int, datetime], dict[str, str]
]  # of a number and its first scheduled time


@dataclass(frozen=True)
class Scale:
    """The size of a measurement. `times` is the number of samples of each workload."""

    times: int = 3
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class Wave:
    """Runs that are due evenly from `first` to `last`."""

    tenant: Tenant
    number: int
    first: datetime
    last: datetime


@dataclass(kw_only=True)
class Rig:
    """Separate servers and a stack. `settings` are the variables of every service."""

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
        with (
            Servers.open(root / "servers") as servers,
            Stack.open(servers, root / "stack", start=start_process) as stack,
        ):
            yield cls(
                stack=stack,
                starts=starts,
                settings=environment,
                horizon=float(horizon.removesuffix("s")),
            )

    def start(self) -> None:
        self.stack.start(self.counts, **self.settings)

    def start_one(self, kind: ServiceKind, number: int, **settings: str) -> str:
        """Start one instance and return its name."""
        return self.stack.start_one(kind, number, ready=True, **self.settings, **settings).name

    def stop(self, *names: str) -> None:
        self.stack.stop(*names)

    @asynccontextmanager
    async def tenant(self) -> AsyncIterator[Tenant]:
        """Yield a new tenant, so that its rows in the ledger belong to one sample."""
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
        target: Mapping[str, Any] = START_TASK,
        **more: Any,  # any other field of a schedule
    ) -> Wave:
        """Insert schedules that are not staged, with one due time or with `rate` runs a second.

        The first is due in `ahead` seconds. The default is the time until all are inserted, so
        that the staging begins after the load.
        """
        await tenant.put("model", {"at": time_in(MODEL_DUE).isoformat()}, target, **more)
        copier = ScheduleCopier(
            connection=tenant.ledger, tenant=tenant.name, model="model", when=when, paused=None
        )
        accepted_at = await copier.accepted_at()
        step = timedelta(0) if rate is None else timedelta(seconds=1 / rate)
        seconds = later + (
            self.horizon + LOAD_MARGIN + number / LOAD_RATE if ahead is None else ahead
        )
        first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        # The ticker searches from the earliest time that it has saved.
        await tenant.put("mark", {"at": first.isoformat()}, target)
        soonest = first - accepted_at.replace(microsecond=0)
        spread = Spread(soonest, step, first=0)
        await copier.create_copies(range(number), spread)
        await tenant.harebell.cancel(key="mark")
        last = spread.due(number - 1, accepted_at)
        return Wave(tenant=tenant, number=number, first=first, last=last)

    def spent(self) -> CpuTime:
        """Return the CPU time of each service and each server."""
        return CpuTime.by(self.pids())

    def pids(self) -> dict[str, int]:
        """Return the ids of the running processes."""
        private = self.stack.servers.private
        assert private is not None, (
            "Other programs use the given servers, so their CPU time is useless."
        )
        pids = {"broker": _pid(private.broker), "database": _pid(private.database)}
        living = self.stack.services.processes.processes()
        return pids | {name: process.pid for name, process in sorted(living.items())}

    async def until(self, time: datetime) -> None:
        await asyncio.sleep((time - datetime.now(UTC)).total_seconds())

    async def drained(self, wave: Wave, *, within: float = DRAIN_TIMEOUT) -> float:
        """Wait until every due run has ended and return the time in seconds since 1970."""

        async def is_drained() -> bool:
            return bool(await wave.tenant.ledger.fetchval(_DRAINED, wave.last))

        await until(is_drained, within=within, what="the end of the backlog")
        return time.time()

    async def started(self, number: int) -> Starts:
        """Return the due time and the start of each new attempt, in the order of the starts."""
        return await take_starts(self.starts, number)

    async def on_record(self, wave: Wave, attempts: int = 1) -> dict[str, int]:
        """Raise unless each run has `attempts` attempts and is completed."""
        row = await wave.tenant.ledger.fetchrow(_RECORD, wave.tenant.name)
        record = {"claimed": row["attempts"], "completed": row["completed"]}
        assert record == {"claimed": wave.number * attempts, "completed": wave.number}, record
        return record


def start_lateness(starts: Starts) -> dict[str, float]:
    return lateness([started - due for due, started in starts])


def _pid(server: Any) -> int:  # a broker or a database server
    process = server.daemons[0].process
    assert process is not None
    return int(process.pid)
