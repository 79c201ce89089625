"""A lane of an executor without servers, whose runs call one task that the test controls."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from tests.fakes.attempts import no_keys
from tests.fakes.tickets import NINE, ticket

from harebell.contract.amqp_names import Lane
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.attempts import LaneAttempts
from harebell.executor.running.bulkheads import TargetBulkhead, TenantAttempts, TenantBulkhead
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.executor.targets.amqp import AmqpTargets
from harebell.executor.targets.attempt import AttemptOutcome, PolicyGuard
from harebell.executor.targets.call import Targets
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import LoadedTask, TaskTargets
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.secret_files import SecretFiles

TIMEOUT = 10  # seconds
LEASE = 15.0
ECHO, OTHER = "harebell.echo", "other.echo"  # one task with two names, as two targets


@dataclass(kw_only=True)
class ControlledTask:
    """The task that all runs call. It records each start and ends after `released` is set."""

    clock: Clock
    started: list[tuple[int, datetime]] = field(default_factory=list)
    running: int = 0
    max_running: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, args: dict[str, Any]) -> None:
        self.started.append((len(args["filling"]), self.clock.now()))
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        self.changed.set()
        await self.released.wait()
        self.running -= 1

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.started]


class RecordingCompleter(Completer):
    """A completer that keeps the outcomes instead of recording them in a database."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.completed: list[tuple[ClaimedRun, AttemptOutcome]] = []
        self.probes: list[ClaimedRun] = []
        self.changed = changed

    def complete(self, run: ClaimedRun, outcome: AttemptOutcome, *, is_probe: bool = False) -> None:
        self.completed.append((run, outcome))
        if is_probe:
            self.probes.append(run)
        self.changed.set()


class RecordingClaimedRuns(ClaimedRuns):
    """A registry that keeps the removed runs. Only a run that does not start is removed here."""

    def __init__(self, changed: asyncio.Event) -> None:
        super().__init__()
        self.removed: list[ClaimedRun] = []
        self.changed = changed

    def remove(self, runs: Iterable[ClaimedRun]) -> None:
        self.removed.extend(runs)
        self.changed.set()


class FakeLeaseKeeper(LeaseKeeper):
    """A lease keeper that rejects the first `rejections` renewals and grants the others."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.rejections = 0
        self.error: Exception | None = None
        self.renewals = 0
        self.changed = changed

    async def try_renew_before_start(self, run: ClaimedRun) -> bool:
        self.renewals += 1
        self.changed.set()
        if self.error is not None:
            raise self.error
        if self.renewals <= self.rejections:
            return False
        run.renewed_at = monotonic()
        return True


@dataclass(kw_only=True)
class LaneHarness:
    """The starter and the attempts of one lane, with fakes in place of the database."""

    clock: Clock
    task: ControlledTask
    slots: int
    max_share: float = 1.0
    tenant_share: float = 1.0
    quota: int | None = None  # attempts of one tenant
    completer: RecordingCompleter = field(init=False)
    claimed_runs: RecordingClaimedRuns = field(init=False)
    leases: FakeLeaseKeeper = field(init=False)
    starter: LaneStarter = field(init=False)
    attempts: LaneAttempts = field(init=False)

    def __post_init__(self) -> None:
        self.completer = RecordingCompleter(self.task.changed)
        self.claimed_runs = RecordingClaimedRuns(self.task.changed)
        self.leases = FakeLeaseKeeper(self.task.changed)
        tasks = TaskTargets(
            {
                name: LoadedTask(self.task.echo, is_async=True, takes_context=False)
                for name in (ECHO, OTHER)
            },
            threads=1,
        )
        unused = cast("Any", None)
        self.attempts = LaneAttempts(
            lane=Lane.NORMAL,
            leases=self.leases,
            rate_limiter=unused,
            blackouts=unused,
            delegations=unused,
            targets=Targets(
                http=NoHttp(),
                amqp=NoAmqp(),
                task=tasks,
                secrets=SecretResolver(SecretFiles(None)),
                signer=no_keys(),
            ),
            guard=PolicyGuard(TenantPolicies.unrestricted(), "default"),
            completer=self.completer,
            claimed_runs=self.claimed_runs,
            publisher=unused,
            clock=self.clock,
        )
        self.starter = LaneStarter(
            lane=Lane.NORMAL,
            slots=self.slots,
            steady_seconds=LEASE,
            bulkhead=TargetBulkhead(slots=self.slots, max_share=self.max_share),
            tenants=TenantBulkhead(
                slots=self.slots,
                max_share=self.tenant_share,
                attempts=TenantAttempts(quota=lambda _: self.quota),
            ),
            clock=self.clock,
            attempts=self.attempts,
            start_guard=StartGuard(),
        )

    @classmethod
    async def create(
        cls,
        slots: int,
        max_share: float = 1.0,
        *,
        tenant_share: float = 1.0,
        quota: int | None = None,
    ) -> "LaneHarness":
        started_at = monotonic()

        async def read() -> datetime:
            return NINE + timedelta(seconds=monotonic() - started_at)

        clock = Clock(read)
        await clock.refresh()
        return cls(
            clock=clock,
            task=ControlledTask(clock=clock),
            slots=slots,
            max_share=max_share,
            tenant_share=tenant_share,
            quota=quota,
        )

    @property
    def completed(self) -> list[tuple[ClaimedRun, AttemptOutcome]]:
        return self.completer.completed

    def claimed(
        self,
        number: int,
        due_in: float = 0.0,
        *,
        priority: int = 5,
        lease: float = LEASE,
        lease_age: float = 0.0,
        expires_in: float | None = None,
        task: str = ECHO,
        tenant: str | None = None,
    ) -> ClaimedRun:
        """Return a claimed run. The task receives `number`. Times are in seconds."""
        due_at = self.clock.now() + timedelta(seconds=due_in)
        of_run = ticket(number, due_at, priority=priority, filling=number, task=task)
        if tenant is not None:
            run_spec = of_run.run_spec.model_copy(update={"tenant": tenant})
            of_run = of_run.model_copy(update={"run_spec": run_spec})
        if expires_in is not None:
            expires_at = self.clock.now() + timedelta(seconds=expires_in)
            of_run = of_run.model_copy(update={"expires_at": expires_at})
        return ClaimedRun(
            ticket=of_run, token=2, attempt=1, lease=lease, renewed_at=monotonic() - lease_age
        )

    async def wait_for(self, count: int, items: Sized) -> None:
        """Wait until `items` has `count` elements."""
        async with asyncio.timeout(TIMEOUT):
            while len(items) < count:
                self.task.changed.clear()
                await self.task.changed.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the lane during the block."""
        loop = asyncio.create_task(self.starter.run())
        try:
            yield
        finally:
            self.task.released.set()
            await self.starter.drain(TIMEOUT)
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)


class NoHttp(HttpTargets):
    """An HTTP client that no test calls."""

    def __init__(self) -> None:
        super().__init__(Egress(), TenantPolicies.unrestricted())


class NoAmqp(AmqpTargets):
    """An AMQP client that no test calls."""

    def __init__(self) -> None:
        pass
