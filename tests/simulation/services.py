"""The services as they are, each wired to ports of a simulation instead of servers."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from tests.lanes import NoAmqp, NoHttp
from tests.memory.ledger import reach
from tests.memory.store import Store
from tests.simulation.bus import Broker
from tests.simulation.process import Process
from tests.simulation.wire import Link, Presence

from harebell.dispatcher.service import PREFETCH as DISPATCHED
from harebell.dispatcher.service import Dispatcher
from harebell.executor.service import Executor
from harebell.executor.targets.perform import Targets
from harebell.executor.targets.registry import Loaded
from harebell.executor.targets.task import TaskTargets
from harebell.kernel.amqp.consume import Settler
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.session import Concurrent, Consumer, Ordered
from harebell.kernel.amqp.upkeep import Upkeep
from harebell.kernel.bus import DISPATCHER, OUTCOMES, SYSTEM, TICKER
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import database_time
from harebell.kernel.health import Health
from harebell.kernel.lifecycle import Parts, patiently, run_until
from harebell.kernel.settings import ExecutorSettings, TickerSettings
from harebell.ticker.changes import Changes
from harebell.ticker.reviewer import Reviewer
from harebell.ticker.service import GATHER, PREFETCH
from harebell.ticker.staging import Stager
from harebell.ticker.sweeping import Sweeper
from harebell.ticker.versions import Versions

TASK = "simulation.effect"
_URLS: dict[str, Any] = {"amqp_url": "amqp://memory/", "database_url": "postgresql://memory/"}
TICKERS = TickerSettings(**_URLS)
EXECUTORS = ExecutorSettings(**_URLS)


class SimulatedParts(Parts):
    """What every service is made of; only where sessions come from differs."""

    async def connect(self, heartbeat: int = 0) -> Any:
        return await cast("Link", self.link).connect(heartbeat)


@dataclass(frozen=True)
class Ports:
    """What one process reaches the world by."""

    process: Process
    store: Store
    broker: Broker
    link: Link
    stop: asyncio.Event

    def parts(self, role: str) -> SimulatedParts:
        pool = reach(self.store, self.process.database, self.process)
        clock = Clock(lambda: database_time(pool))
        upkeep = Upkeep(SYSTEM, declares=True)
        publisher = Publisher(cast("Any", self.link), upkeep.on_unroutable)
        settings = EXECUTORS if role == "executor" else TICKERS
        return SimulatedParts(
            role, settings, upkeep, self.stop, Health(), pool, clock, cast("Any", self.link),
            publisher, Settler(publisher, clock),
        )  # fmt: skip


async def ticker(ports: Ports) -> None:
    """As `harebell.ticker.service.serve` has it; housekeeping apart."""
    parts = ports.parts("ticker")
    await patiently(ports.stop, parts.clock.refresh)
    if ports.stop.is_set():
        return
    versions, wake = Versions(), asyncio.Event()
    own = (parts.pool, parts.publisher, parts.clock)
    reviewer = Reviewer(*own, versions, TICKERS.horizon, wake)
    gap = TICKERS.pass_gap.total_seconds()
    batch = TICKERS.staging_batch
    stager = Stager(*own, versions, TICKERS.horizon, batch, gap, wake, reviewer.note)
    changes = Changes(*own, versions, TICKERS.horizon, wake, reviewer.note)
    presence = cast("Any", Presence(ports.broker, ports.process))
    sweeper = Sweeper(*own, presence, reviewer.ask)
    work = partial(Ordered, changes.handle, parts.settler, limit=PREFETCH, linger=GATHER)
    hints = partial(Ordered, reviewer.on_outcomes, parts.settler, limit=PREFETCH, linger=GATHER)
    consumer = Consumer(TICKER.name, parts.connect, work, prefetch=PREFETCH)
    outcomes = Consumer(OUTCOMES.name, parts.connect, hints, prefetch=PREFETCH)
    await run_until(
        ports.stop,
        consuming=[consumer.run(ports.stop), outcomes.run(ports.stop)],
        background=[
            parts.keep(),
            stager.run(),
            reviewer.run(),
            sweeper.keep_leases(),
            sweeper.keep_lost(),
        ],
    )


async def dispatcher(ports: Ports) -> None:
    """As `harebell.dispatcher.service.serve` has it."""
    parts = ports.parts("dispatcher")
    await patiently(ports.stop, parts.clock.refresh)
    if ports.stop.is_set():
        return
    async with asyncio.TaskGroup() as tasks:
        service = Dispatcher(
            parts.publisher, parts.clock, bundle_max=20, tasks=tasks, stop=ports.stop
        )
        worker = partial(Concurrent, service.handle, parts.settler)
        consumer = Consumer(DISPATCHER.name, parts.connect, worker, prefetch=DISPATCHED)
        await run_until(
            ports.stop,
            consuming=[consumer.run(ports.stop)],
            background=[parts.keep(), service.run()],
        )


async def executor(ports: Ports, effect: Any) -> None:
    """As `harebell.executor.service.serve` has it, with one task to call."""
    parts = ports.parts("executor")
    await patiently(ports.stop, parts.clock.refresh)
    if ports.stop.is_set():
        return
    tasks = TaskTargets({TASK: Loaded(effect, is_async=True, takes_context=True)}, threads=1)
    service = Executor.of(EXECUTORS, parts, Targets(NoHttp(), NoAmqp(), tasks))
    await service.run()
