"""The services as they are, each wired to ports of a simulation instead of servers."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from tests.fakes.lane import NoAmqp, NoHttp
from tests.fakes.ledger.ledger import open_client
from tests.fakes.ledger.store import Store
from tests.simulation.bus import Broker
from tests.simulation.fake_broker_client import Link, Presence
from tests.simulation.process import Process

from harebell.bootstrap.health import Health
from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import ServiceContext
from harebell.dispatcher.service import PREFETCH as DISPATCHED
from harebell.dispatcher.service import Dispatcher
from harebell.dlq_inspector.commands import DeadLetterCommandHandler
from harebell.dlq_inspector.ingest import Ingester
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.dlq_inspector.service import GATHER_TIME as INGEST_GATHER_TIME
from harebell.dlq_inspector.service import MAX_INGEST_BATCH, REQUEST_PREFETCH, RequestHandler
from harebell.executor.service import Executor
from harebell.executor.targets.call import Targets
from harebell.executor.targets.task import LoadedTask, TaskTargets
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.service import MAX_BATCH as CHECKED
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.consumer import ConcurrentWorker, Consumer, OrderedWorker
from harebell.messaging.publisher import Publisher
from harebell.messaging.topology.bus import (
    DEAD_LETTERS,
    DISPATCHER,
    DLQ,
    INTAKE,
    OUTCOMES,
    SYSTEM,
    TICKER,
)
from harebell.messaging.topology_keeper import TopologyKeeper
from harebell.runtime.clock import Clock
from harebell.runtime.retries import retry_until_available
from harebell.runtime.settings import ExecutorSettings, TickerSettings
from harebell.storage.engine import database_time
from harebell.ticker.commands.apply import CommandApplier
from harebell.ticker.reconciler import Reconciler
from harebell.ticker.recovery.rescuer import Rescuer
from harebell.ticker.service import COMMAND_PREFETCH, GATHER_TIME
from harebell.ticker.stager import Stager
from harebell.ticker.store.versions import VersionCache

TASK = "simulation.effect"
_URLS: dict[str, Any] = {"amqp_url": "amqp://memory/", "database_url": "postgresql://memory/"}
TICKERS = TickerSettings(**_URLS)
EXECUTORS = ExecutorSettings(**_URLS)


class SimulatedParts(ServiceContext):
    """What every service is made of; only where sessions come from differs."""

    async def connect(self, heartbeat: int = 0) -> Any:
        return await cast("Link", self.connection).connect(heartbeat)


@dataclass(frozen=True)
class Ports:
    """What one process reaches the world by."""

    process: Process
    store: Store
    broker: Broker
    link: Link
    stop: asyncio.Event

    def parts(self, role: str) -> SimulatedParts:
        pool = open_client(self.store, self.process.database, self.process)
        clock = Clock(lambda: database_time(pool))
        upkeep = TopologyKeeper(SYSTEM, declares=True)
        publisher = Publisher(cast("Any", self.link), upkeep.on_unroutable)
        settings = EXECUTORS if role == "executor" else TICKERS
        return SimulatedParts(
            role=role,
            settings=settings,
            stop=self.stop,
            health=Health(),
            pool=pool,
            clock=clock,
            topology_keeper=upkeep,
            connection=cast("Any", self.link),
            publisher=publisher,
            acknowledger=Acknowledger(publisher, clock),
        )


Serve: TypeAlias = Callable[[Ports, SimulatedParts], Coroutine[Any, Any, None]]
Main: TypeAlias = Callable[[Ports], Coroutine[Any, Any, None]]


def service(role: str) -> Callable[[Serve], Main]:
    """What all of them begin with, as `open_parts` has it: nobody serves without a clock."""

    def made(serve: Serve) -> Main:
        async def main(ports: Ports) -> None:
            parts = ports.parts(role)
            await retry_until_available(ports.stop, parts.clock.refresh)
            if not ports.stop.is_set():
                await serve(ports, parts)

        return main

    return made


@service("intake")
async def intake(ports: Ports, parts: SimulatedParts) -> None:
    """As `harebell.intake.service.serve` has it; queries apart."""
    door = CommandHandler(parts.publisher, parts.clock, IntakePolicy())
    worker = partial(OrderedWorker, door.handle, parts.acknowledger, limit=CHECKED, gather_time=0)
    consumer = Consumer(
        INTAKE.name, parts.connect, worker, prefetch=2 * CHECKED, needs_idle_check=False
    )
    await run_until(ports.stop, consuming=[consumer.run(ports.stop)], background=[parts.run()])


@service("ticker")
async def ticker(ports: Ports, parts: SimulatedParts) -> None:
    """As `harebell.ticker.service.serve` has it; housekeeping apart."""
    versions, wake = VersionCache(), asyncio.Event()
    reviewer = Reconciler(
        pool=parts.pool,
        publisher=parts.publisher,
        clock=parts.clock,
        versions=versions,
        horizon=TICKERS.horizon,
        wake=wake,
    )
    stager = Stager(
        pool=parts.pool,
        publisher=parts.publisher,
        clock=parts.clock,
        versions=versions,
        horizon=TICKERS.horizon,
        batch=TICKERS.staging_batch,
        min_poll_interval=TICKERS.min_poll_interval.total_seconds(),
        wake=wake,
        on_saved=reviewer.observe,
    )
    changes = CommandApplier(
        pool=parts.pool,
        publisher=parts.publisher,
        clock=parts.clock,
        versions=versions,
        horizon=TICKERS.horizon,
        wake=wake,
        on_saved=reviewer.observe,
    )
    presence = cast("Any", Presence(ports.broker, ports.process))
    sweeper = Rescuer(
        pool=parts.pool,
        publisher=parts.publisher,
        clock=parts.clock,
        liveness=presence,
        request_reconciliation=reviewer.request,
    )
    work = partial(
        OrderedWorker,
        changes.handle,
        parts.acknowledger,
        limit=COMMAND_PREFETCH,
        gather_time=GATHER_TIME,
    )
    hints = partial(
        OrderedWorker,
        reviewer.handle_outcomes,
        parts.acknowledger,
        limit=COMMAND_PREFETCH,
        gather_time=GATHER_TIME,
    )
    consumer = Consumer(
        TICKER.name, parts.connect, work, prefetch=COMMAND_PREFETCH, needs_idle_check=False
    )
    outcomes = Consumer(OUTCOMES.name, parts.connect, hints, prefetch=COMMAND_PREFETCH)
    await run_until(
        ports.stop,
        consuming=[consumer.run(ports.stop), outcomes.run(ports.stop)],
        background=[
            parts.run(),
            stager.run(),
            reviewer.run(),
            sweeper.run_lease_recovery(),
            sweeper.run_ticket_recovery(),
        ],
    )


@service("dispatcher")
async def dispatcher(ports: Ports, parts: SimulatedParts) -> None:
    """As `harebell.dispatcher.service.serve` has it."""
    async with asyncio.TaskGroup() as tasks:
        shell = Dispatcher(
            parts.publisher, parts.clock, work_batch_size=50, tasks=tasks, stop=ports.stop
        )
        worker = partial(ConcurrentWorker, shell.handle, parts.acknowledger)
        consumer = Consumer(DISPATCHER.name, parts.connect, worker, prefetch=DISPATCHED)
        await run_until(
            ports.stop,
            consuming=[consumer.run(ports.stop)],
            background=[parts.run(), shell.run()],
        )


def executor(effect: Any) -> Main:
    """As `harebell.executor.service.serve` has it, with one task to call."""
    task = LoadedTask(effect, is_async=True, takes_context=True)

    @service("executor")
    async def serve(_: Ports, parts: SimulatedParts) -> None:
        targets = Targets(NoHttp(), NoAmqp(), TaskTargets({TASK: task}, threads=1))
        await Executor.create(EXECUTORS, parts, targets).run()

    return serve


@service("dlq_inspector")
async def desk(ports: Ports, parts: SimulatedParts) -> None:
    """As `harebell.dlq_inspector.service.serve` has it; replays of many and housekeeping apart."""
    pool, publisher, clock = parts.pool, parts.publisher, parts.clock
    ingester = Ingester(pool=pool, clock=clock)
    command_handler = DeadLetterCommandHandler(
        pool=pool,
        publisher=publisher,
        clock=clock,
        replay_worker=ReplayWorker(pool=pool, publisher=publisher, clock=clock),
    )
    requests = RequestHandler(pool=pool, publisher=publisher, command_handler=command_handler)
    stored = partial(
        OrderedWorker,
        ingester.ingest,
        parts.acknowledger,
        limit=MAX_INGEST_BATCH,
        gather_time=INGEST_GATHER_TIME,
    )
    handled = partial(OrderedWorker, requests.handle, parts.acknowledger, limit=1, gather_time=0)
    consumers = [
        Consumer(DEAD_LETTERS.name, parts.connect, stored, prefetch=2 * MAX_INGEST_BATCH),
        Consumer(DLQ.name, parts.connect, handled, prefetch=REQUEST_PREFETCH),
    ]
    await run_until(
        ports.stop,
        consuming=[consumer.run(ports.stop) for consumer in consumers],
        background=[parts.run()],
    )
