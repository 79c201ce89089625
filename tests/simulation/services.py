"""The real services, connected to the resources of a simulation instead of servers."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

from tests.fakes.attempts import no_keys
from tests.fakes.lane import NoAmqp, NoHttp
from tests.fakes.ledger.ledger import open_client
from tests.fakes.ledger.store import Store
from tests.fakes.replies import PublishedReplies
from tests.fakes.sender_check import open_sender_check
from tests.simulation.bus import FakeBroker
from tests.simulation.fake_broker_client import FakeConnection, FakeExecutorLiveness
from tests.simulation.process import Process

from harebell.bootstrap.health import Health
from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import ServiceContext
from harebell.contract.amqp_names import COMMANDS
from harebell.dispatcher.service import PREFETCH as DISPATCHER_PREFETCH
from harebell.dispatcher.service import Dispatcher
from harebell.dlq_inspector.commands import DeadLetterCommandHandler
from harebell.dlq_inspector.ingest import Ingester
from harebell.dlq_inspector.parked import ParkingQueue
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.dlq_inspector.service import GATHER_TIME as INGEST_GATHER_TIME
from harebell.dlq_inspector.service import MAX_INGEST_BATCH, REQUEST_PREFETCH, RequestHandler
from harebell.domain.sender import IdentityMode
from harebell.domain.tenant_policy import TenantPolicies
from harebell.executor.service import Executor
from harebell.executor.targets.call import Targets
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import LoadedTask, TaskTargets
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.service import COMMAND_PREFETCH as INTAKE_PREFETCH
from harebell.intake.service import MAX_BATCH as INTAKE_BATCH
from harebell.messaging.accepted_messages import CommandReplies, split_messages
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.consumer import ConcurrentWorker, Consumer, OrderedWorker
from harebell.messaging.foreign_messages import SentMessage
from harebell.messaging.isolation import isolating
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
from harebell.runtime.policy_file import PolicyKeeper
from harebell.runtime.retries import retry_until_available
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.settings import ExecutorSettings, TickerSettings
from harebell.storage.engine import database_time
from harebell.ticker.commands.apply import CommandApplier
from harebell.ticker.completions import CompletionWatcher
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.next_times import NextTimes
from harebell.ticker.reconciler import Reconciler
from harebell.ticker.recovery.rescuer import Rescuer
from harebell.ticker.service import COMMAND_PREFETCH as TICKER_PREFETCH
from harebell.ticker.service import GATHER_TIME as TICKER_GATHER_TIME
from harebell.ticker.stager import Stager
from harebell.ticker.store.schedule_counts import ScheduleCounts
from harebell.ticker.store.versions import VersionCache

TASK: Final = "simulation.effect"
WORK_BATCH_SIZE: Final = 50  # tickets
_URLS: dict[str, Any] = {"amqp_url": "amqp://memory/", "database_url": "postgresql://memory/"}
TICKER_SETTINGS: Final = TickerSettings(**_URLS)
EXECUTOR_SETTINGS: Final = ExecutorSettings(**_URLS)


class SimulatedContext(ServiceContext):
    """The context of a service, whose sessions come from the fake connection."""

    def is_from_service(self, message: SentMessage) -> bool:
        del message  # the fake broker has no logins
        return True

    async def connect(self, heartbeat: int = 0) -> Any:
        return await cast("FakeConnection", self.connection).connect(heartbeat)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of one process."""

    process: Process
    store: Store
    broker: FakeBroker
    connection: FakeConnection
    stop: asyncio.Event

    def open_service(self, role: str) -> SimulatedContext:
        """Build the context, as `bootstrap.service_context.open_service` does."""
        pool = open_client(self.store, self.process.call_database, self.process)
        clock = Clock(lambda: database_time(pool))
        keeper = TopologyKeeper(SYSTEM, declares=True)
        publisher = Publisher(cast("Any", self.connection), keeper.on_unroutable)
        return SimulatedContext(
            role=role,
            login="guest",
            settings=EXECUTOR_SETTINGS if role == "executor" else TICKER_SETTINGS,
            stop=self.stop,
            health=Health(),
            pool=pool,
            clock=clock,
            topology_keeper=keeper,
            connection=cast("Any", self.connection),
            publisher=publisher,
            replies=PublishedReplies(publisher),
            acknowledger=Acknowledger(publisher, clock),
            policies=PolicyKeeper(None, TenantPolicies.unrestricted()),
        )


Serve: TypeAlias = Callable[[Resources, SimulatedContext], Coroutine[Any, Any, None]]
Main: TypeAlias = Callable[[Resources], Coroutine[Any, Any, None]]


def service(role: str) -> Callable[[Serve], Main]:
    """Return a decorator that opens the service and waits for its clock before it serves."""

    def decorate(serve: Serve) -> Main:
        async def main(resources: Resources) -> None:
            context = resources.open_service(role)
            await retry_until_available(resources.stop, context.clock.refresh)
            if not resources.stop.is_set():
                await serve(resources, context)

        return main

    return decorate


@service("intake")
async def intake(resources: Resources, context: SimulatedContext) -> None:
    """Run `harebell.intake.service.serve` without queries."""
    # A reading of the CPU time would make the order of the tasks depend on the machine.
    sender_check, rejection_events = open_sender_check(
        context.publisher, context.clock, replies=context.replies
    )
    command_handler = CommandHandler(
        publisher=context.publisher,
        clock=context.clock,
        policy=IntakePolicy(),
        replies=context.replies,
        sender_check=sender_check,
        rejection_events=rejection_events,
        cpu=lambda: 0.0,
    )
    worker = partial(
        OrderedWorker,
        isolating(command_handler.handle, partial(sender_check.answer, shared_exchange=COMMANDS)),
        context.acknowledger,
        limit=INTAKE_BATCH,
        gather_time=0,
    )
    commands = Consumer(
        INTAKE.name,
        context.connect,
        worker,
        prefetch=INTAKE_PREFETCH,
        needs_idle_check=False,
    )
    stop = resources.stop
    await run_until(stop, consuming=[commands.run(stop)], background=[context.run()])


@service("ticker")
async def ticker(resources: Resources, context: SimulatedContext) -> None:
    """Run `harebell.ticker.service.serve` without breakers and maintenance."""
    versions, wake, next_times = VersionCache(), asyncio.Event(), NextTimes()
    watcher = CompletionWatcher(pool=context.pool, publisher=context.publisher, clock=context.clock)

    def observe_reconciled(records: Sequence[ScheduleRecord]) -> None:
        watcher.observe(records)
        next_times.observe(record.next_at for record in records)

    reconciler = Reconciler(
        pool=context.pool,
        publisher=context.publisher,
        clock=context.clock,
        versions=versions,
        horizon=TICKER_SETTINGS.horizon,
        wake=wake,
        on_saved=observe_reconciled,
    )

    def observe(records: Sequence[ScheduleRecord]) -> None:
        reconciler.observe(records)
        observe_reconciled(records)

    stager = Stager(
        pool=context.pool,
        publisher=context.publisher,
        clock=context.clock,
        versions=versions,
        horizon=TICKER_SETTINGS.horizon,
        batch=TICKER_SETTINGS.staging_batch,
        min_poll_interval=TICKER_SETTINGS.min_poll_interval.total_seconds(),
        wake=wake,
        next_times=next_times,
        on_saved=observe,
    )
    replies = CommandReplies(context.replies, IdentityMode.ROUTING_KEY)
    applier = CommandApplier(
        pool=context.pool,
        publisher=context.publisher,
        clock=context.clock,
        versions=versions,
        horizon=TICKER_SETTINGS.horizon,
        wake=wake,
        on_saved=observe,
        replies=replies,
        schedule_counts=ScheduleCounts(TenantPolicies.unrestricted()),
    )
    liveness = FakeExecutorLiveness(resources.broker, resources.process)
    rescuer = Rescuer(
        pool=context.pool,
        publisher=context.publisher,
        clock=context.clock,
        liveness=cast("Any", liveness),
        request_reconciliation=reconciler.request,
    )
    worker = partial(
        OrderedWorker,
        acknowledger=context.acknowledger,
        limit=TICKER_PREFETCH,
        gather_time=TICKER_GATHER_TIME,
    )
    commands = Consumer(
        TICKER.name,
        context.connect,
        partial(worker, isolating(applier.handle, replies.answer, split_messages)),
        prefetch=TICKER_PREFETCH,
        needs_idle_check=False,
    )
    outcomes = Consumer(
        OUTCOMES.name,
        context.connect,
        partial(worker, reconciler.handle_outcomes),
        prefetch=TICKER_PREFETCH,
    )
    stop = resources.stop
    await run_until(
        stop,
        consuming=[commands.run(stop), outcomes.run(stop)],
        background=[
            context.run(),
            stager.run(),
            reconciler.run(),
            watcher.run(),
            rescuer.run_lease_recovery(),
            rescuer.run_ticket_recovery(),
        ],
    )


@service("dispatcher")
async def dispatcher(resources: Resources, context: SimulatedContext) -> None:
    """Run `harebell.dispatcher.service.serve` without gates."""
    stop = resources.stop
    async with asyncio.TaskGroup() as tasks:
        dispatching = Dispatcher(
            context.publisher,
            context.clock,
            work_batch_size=WORK_BATCH_SIZE,
            tasks=tasks,
            stop=stop,
        )
        worker = partial(ConcurrentWorker, dispatching.handle, context.acknowledger)
        tickets = Consumer(DISPATCHER.name, context.connect, worker, prefetch=DISPATCHER_PREFETCH)
        await run_until(
            stop, consuming=[tickets.run(stop)], background=[context.run(), dispatching.run()]
        )


def executor(effect: Any) -> Main:
    """Return the executor service with one task."""
    task = LoadedTask(effect, is_async=True, takes_context=True)

    @service("executor")
    async def serve(_: Resources, context: SimulatedContext) -> None:
        targets = Targets(
            http=NoHttp(),
            amqp=NoAmqp(),
            task=TaskTargets({TASK: task}, threads=1),
            secrets=SecretResolver(SecretFiles(None)),
            signer=no_keys(),
        )
        await Executor.create(EXECUTOR_SETTINGS, context, targets).run()

    return serve


@service("dlq_inspector")
async def dlq_inspector(resources: Resources, context: SimulatedContext) -> None:
    """Run `harebell.dlq_inspector.service.serve` without replay jobs and maintenance."""
    pool, publisher, clock = context.pool, context.publisher, context.clock
    ingester = Ingester(pool=pool, clock=clock)
    command_handler = DeadLetterCommandHandler(
        pool=pool,
        publisher=publisher,
        clock=clock,
        replay_worker=ReplayWorker(pool=pool, publisher=publisher, clock=clock),
    )
    request_handler = RequestHandler(
        pool=pool,
        parking=ParkingQueue(context.connect),
        replies=CommandReplies(context.replies, IdentityMode.ROUTING_KEY),
        command_handler=command_handler,
        sender_check=open_sender_check(publisher, clock, replies=context.replies)[0],
    )
    worker = partial(OrderedWorker, acknowledger=context.acknowledger)
    dead_letters = Consumer(
        DEAD_LETTERS.name,
        context.connect,
        partial(
            worker,
            ingester.ingest,
            limit=MAX_INGEST_BATCH,
            gather_time=INGEST_GATHER_TIME,
        ),
        prefetch=2 * MAX_INGEST_BATCH,
    )
    requests = Consumer(
        DLQ.name,
        context.connect,
        partial(
            worker,
            isolating(request_handler.handle, request_handler.answer),
            limit=1,
            gather_time=0,
        ),
        prefetch=REQUEST_PREFETCH,
    )
    stop = resources.stop
    await run_until(
        stop,
        consuming=[dead_letters.run(stop), requests.run(stop)],
        background=[context.run()],
    )
