"""A lane of an executor without servers: its runs call one task that tests hold by the hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.fakes.tickets import NINE, ticket

from harebell.contract.amqp_names import Lane
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.target_bulkhead import TargetBulkhead
from harebell.executor.targets.amqp import AmqpTargets
from harebell.executor.targets.attempt import AttemptOutcome
from harebell.executor.targets.call import Targets
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.task import LoadedTask, TaskTargets
from harebell.runtime.clock import Clock, monotonic

PATIENCE = 10  # seconds
LEASE = 15.0
ECHO, OTHER = "harebell.echo", "other.echo"  # one task by two names: two targets


@dataclass
class Work:
    """The one task that runs call; it says when, and ends when it is told to."""

    clock: Clock
    started: list[tuple[int, datetime]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, args: dict[str, Any]) -> None:
        self.started.append((len(args["filling"]), self.clock.now()))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.changed.set()
        await self.go_on.wait()
        self.at_once -= 1

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.started]


@dataclass
class Stage:
    """A lane, and what around it would be the ledger."""

    clock: Clock
    work: Work
    slots: int
    share: float = 1.0
    settled: list[tuple[ClaimedRun, AttemptOutcome]] = field(default_factory=list)
    abandoned: list[ClaimedRun] = field(default_factory=list)
    refusals: int = 0  # renewals that the ledger refuses, before it grants one
    renewals: int = 0
    runner: LaneStarter = field(init=False)

    def __post_init__(self) -> None:
        tasks = TaskTargets(
            {
                name: LoadedTask(self.work.echo, is_async=True, takes_context=False)
                for name in (ECHO, OTHER)
            },
            threads=1,
        )
        self.runner = LaneStarter(
            *(
                Lane.NORMAL,
                self.slots,
                TargetBulkhead(self.slots, self.share),
                self.clock,
                Targets(NoHttp(), NoAmqp(), tasks),
                LEASE,
            ),
            renew=self.renew,
            settle=self.settle,
            abandon=self.abandon,
            lets_start=self.lets_start,
        )

    @classmethod
    async def make(cls, slots: int, share: float = 1.0) -> "Stage":
        began = monotonic()

        async def read() -> datetime:
            return NINE + timedelta(seconds=monotonic() - began)

        clock = Clock(read)
        await clock.refresh()
        return cls(clock, Work(clock), slots, share)

    async def renew(self, run: ClaimedRun) -> bool:
        self.renewals += 1
        self.work.changed.set()
        if self.renewals <= self.refusals:
            return False
        run.renewed_at = monotonic()
        return True

    async def lets_start(self, _: ClaimedRun) -> bool:
        return True

    def settle(self, run: ClaimedRun, outcome: AttemptOutcome) -> None:
        self.settled.append((run, outcome))
        self.work.changed.set()

    def abandon(self, run: ClaimedRun) -> None:
        self.abandoned.append(run)
        self.work.changed.set()

    def claimed(
        self,
        number: int,
        due_in: float = 0.0,
        *,
        priority: int = 5,
        leased: float = LEASE,
        waited: float = 0.0,
        expires_in: float | None = None,
        task: str = ECHO,
    ) -> ClaimedRun:
        """`waited`: seconds since its claim; `number` is what its task is told."""
        due_at = self.clock.now() + timedelta(seconds=due_in)
        of = ticket(number, due_at, priority=priority, filling=number, task=task)
        if expires_in is not None:
            expires_at = self.clock.now() + timedelta(seconds=expires_in)
            of = of.model_copy(update={"expires_at": expires_at})
        return ClaimedRun(of, 2, 1, leased, monotonic() - waited)

    async def until(self, count: int, of: list[Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(of) < count:
                self.work.changed.clear()
                await self.work.changed.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.create_task(self.runner.run())
        try:
            yield
        finally:
            self.work.go_on.set()
            await self.runner.drain(PATIENCE)
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)


class NoHttp(HttpTargets):
    def __init__(self) -> None:
        super().__init__(())


class NoAmqp(AmqpTargets):
    def __init__(self) -> None:
        pass
