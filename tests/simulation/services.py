"""The real services, connected to the resources of a simulation instead of servers."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, cast

from tests.fakes.attempts import no_keys
from tests.fakes.lane import NoAmqp, NoHttp
from tests.fakes.ledger.ledger import open_client
from tests.fakes.ledger.store import Store
from tests.fakes.replies import PublishedReplies
from tests.simulation.bus import FakeBroker
from tests.simulation.fake_broker_client import FakeConnection, FakeExecutorLiveness
from tests.simulation.process import Process

from harebell.bootstrap.health import Health
from harebell.bootstrap.parts import ServiceParts, run_once
from harebell.bootstrap.service_context import ServiceContext
from harebell.contract.amqp_names import DELAYED
from harebell.dispatcher.service import dispatcher_parts
from harebell.dlq_inspector.service import dlq_inspector_parts
from harebell.domain.tenant_policy import TenantPolicies
from harebell.executor.service import Executor
from harebell.executor.targets.call import Targets
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import LoadedTask, TaskTargets
from harebell.intake.service import intake_parts
from harebell.messaging.acknowledge import Acknowledger
from harebell.messaging.foreign_messages import SentMessage
from harebell.messaging.publisher import Publisher
from harebell.messaging.topology.bus import (
    BREAKERS,
    QUERY,
    REPORTS,
    SYSTEM,
    UNDELIVERED_REQUESTS,
)
from harebell.messaging.topology_keeper import TopologyKeeper
from harebell.runtime.clock import Clock
from harebell.runtime.policy_file import PolicyKeeper
from harebell.runtime.retries import retry_until_available
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.settings import (
    DispatcherSettings,
    DlqInspectorSettings,
    ExecutorSettings,
    IntakeSettings,
    ServiceSettings,
    TickerSettings,
)
from harebell.storage.engine import database_time
from harebell.ticker.service import ticker_parts

TASK: Final = "simulation.effect"
NO_MESSAGES: Final = "No scenario publishes such messages."
NO_FAKE: Final = "The ledger in memory does not answer its statements."
# The parts that no scenario runs, by service, with the reason. All other parts run.
LEFT_OUT: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "intake": {DELAYED: NO_MESSAGES, QUERY.name: NO_MESSAGES, "usage": NO_FAKE},
        "ticker": {
            REPORTS.name: NO_MESSAGES,
            BREAKERS.name: NO_FAKE,
            "breakers": NO_FAKE,
            "backlog": NO_FAKE,
            "held_snapshots": NO_FAKE,
            "planned_runs": NO_FAKE,
            "usage": NO_FAKE,
            "maintenance": NO_FAKE,
            "retention": NO_FAKE,
        },
        "dispatcher": {},
        "dlq_inspector": {
            UNDELIVERED_REQUESTS.name: NO_MESSAGES,
            "open_count": NO_FAKE,
            "replay_jobs": NO_FAKE,
            "maintenance": NO_FAKE,
            "alerts": NO_FAKE,
            "parking": "The ledger in memory accepts every dead letter.",
        },
    }
)
S = TypeVar("S", bound=ServiceSettings)


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

    async def open_service(self, role: str, settings: ServiceSettings) -> SimulatedContext:
        """Build the context and read the clock, as `bootstrap.service_context` does."""
        pool = open_client(self.store, self.process.call_database, self.process)
        clock = Clock(lambda: database_time(pool))
        keeper = TopologyKeeper(SYSTEM, declares=True)
        publisher = Publisher(cast("Any", self.connection), keeper.on_unroutable)
        await retry_until_available(self.stop, clock.refresh)
        return SimulatedContext(
            role=role,
            login="guest",
            settings=settings,
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


Main: TypeAlias = Callable[[Resources], Coroutine[Any, Any, None]]


def simulated(settings_class: type[S], **settings: object) -> S:
    """Return the settings of a service, as of a local stack."""
    return settings_class.model_validate(
        {
            "amqp_url": "amqp://memory/",
            "database_url": "postgresql://memory/",
            "topology_mode": "declare",
            **settings,
        }
    )


INTAKE_SETTINGS: Final = simulated(IntakeSettings)
TICKER_SETTINGS: Final = simulated(TickerSettings)
# Without a recorder of breakers, no ticker answers with a snapshot.
DISPATCHER_SETTINGS: Final = simulated(
    DispatcherSettings, breaker_mode="manual", breaker_startup_timeout="100ms"
)
EXECUTOR_SETTINGS: Final = simulated(ExecutorSettings)
DLQ_SETTINGS: Final = simulated(DlqInspectorSettings)


async def run_parts(parts: ServiceParts, context: ServiceContext) -> None:
    """Run the parts that are not left out. An error of a loop ends the process and is found."""
    left_out = LEFT_OUT[context.role]
    unknown = left_out.keys() - parts.consumers.keys() - parts.loops.keys()
    assert not unknown, f"{context.role} has no parts {unknown}."
    simulated_parts = ServiceParts(
        consumers={k: each for k, each in parts.consumers.items() if k not in left_out},
        loops={k: each for k, each in parts.loops.items() if k not in left_out},
    )
    await simulated_parts.run(context, keep=run_once)


async def intake(resources: Resources) -> None:
    context = await resources.open_service("intake", INTAKE_SETTINGS)
    # A reading of the CPU time would make the order of the tasks depend on the machine.
    parts = intake_parts(INTAKE_SETTINGS, context, cpu=lambda: 0.0)
    await run_parts(parts, context)


async def ticker(resources: Resources) -> None:
    context = await resources.open_service("ticker", TICKER_SETTINGS)
    liveness = FakeExecutorLiveness(resources.broker, resources.process)
    await run_parts(ticker_parts(TICKER_SETTINGS, context, cast("Any", liveness)), context)


async def dispatcher(resources: Resources) -> None:
    context = await resources.open_service("dispatcher", DISPATCHER_SETTINGS)
    async with asyncio.TaskGroup() as tasks:
        await run_parts(dispatcher_parts(DISPATCHER_SETTINGS, context, tasks), context)


def executor(effect: Any) -> Main:
    """Return the executor service with one task."""
    task = LoadedTask(effect, is_async=True, takes_context=True)

    async def main(resources: Resources) -> None:
        context = await resources.open_service("executor", EXECUTOR_SETTINGS)
        targets = Targets(
            http=NoHttp(),
            amqp=NoAmqp(),
            task=TaskTargets({TASK: task}, threads=1),
            secrets=SecretResolver(SecretFiles(None)),
            signer=no_keys(),
        )
        await Executor.create(EXECUTOR_SETTINGS, context, targets).run()

    return main


async def dlq_inspector(resources: Resources) -> None:
    context = await resources.open_service("dlq_inspector", DLQ_SETTINGS)
    await run_parts(dlq_inspector_parts(DLQ_SETTINGS, context), context)
