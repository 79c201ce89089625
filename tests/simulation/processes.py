"""The service processes of a scenario, their supervisor, and the faults of machines and links."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.fakes.ledger.store import Store
from tests.simulation.bus import FakeBroker
from tests.simulation.fake_broker_client import FakeConnection
from tests.simulation.fault_rates import FaultRates
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import Process, Trace
from tests.simulation.services import Main, Resources

HEARTBEAT_TIMEOUT: Final = 9.0  # seconds until the broker closes the connection of a frozen process
MAX_SHORT_FREEZE: Final = 3.0  # seconds, without an effect on leases and connections
MAX_LONG_FREEZE: Final = 35.0  # seconds, longer than any lease
MAX_RESTART_DELAY: Final = 6.0  # seconds


@dataclass(eq=False, kw_only=True)
class SupervisedService:
    """A service. `resources` belong to its present process, if one runs."""

    name: str
    main: Main
    resources: Resources | None = None
    starts: int = 0


@dataclass(kw_only=True)
class Supervisor:
    """The supervisor of all services. `fail` receives the error that ended a service."""

    loop: VirtualLoop
    faults: FaultRates
    store: Store
    broker: FakeBroker
    trace: Trace
    fail: Callable[[str], None]
    services: list[SupervisedService] = field(default_factory=list)
    is_over: bool = False
    random: Random = field(init=False)
    _dead: list[Resources] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = self.faults.random
        self._context = copy_context()  # of no process, because its events outlive each process

    def end(self) -> None:
        """Resume the frozen and dead processes, so that their tasks end without an effect."""
        self.is_over = True
        self.faults.stop()
        running = (each.resources for each in self.services if each.resources is not None)
        for resources in [*self._dead, *running]:
            resources.process.is_over = True
            resources.process.resume(self.loop)

    def start(self, service: SupervisedService) -> None:
        if self.is_over:
            return
        service.starts += 1
        name = f"{service.name}.{service.starts}"
        process = Process(
            name,
            self.faults,
            self.trace,
            crash=lambda: self._crash(service),
            freeze=lambda: self._freeze(service),
        )
        service.resources = Resources(
            process=process,
            store=self.store,
            broker=self.broker,
            connection=FakeConnection(self.broker, process),
            stop=asyncio.Event(),
        )
        self.trace(f"{name} starts")
        task = process.start(service.main(service.resources))
        task.add_done_callback(
            lambda ended: self._on_end(service, process, ended), context=self._context
        )

    def _on_end(
        self, service: SupervisedService, process: Process, task: "asyncio.Task[None]"
    ) -> None:
        resources = service.resources
        if process.is_over or resources is None or resources.process is not process:
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"{process.name} died: {error!r}")
        self.trace(f"{process.name} has ended")
        self._crash(service)

    def _crash(self, service: SupervisedService) -> None:
        """End the process with its connections and open transactions, and start another."""
        if service.resources is None:
            return
        resources, service.resources = service.resources, None
        self._dead.append(resources)
        resources.process.stop()
        resources.connection.close_sessions()
        self.store.disconnect(resources.process)
        self._call_later(self.random.uniform(0, MAX_RESTART_DELAY), self.start, service)

    def freeze(self, process: object) -> None:
        """Stop a process for a random time."""
        for service in self.services:
            if service.resources is not None and service.resources.process is process:
                self.trace(f"{service.name} is frozen in an attempt")
                self._freeze(service)

    def _freeze(self, service: SupervisedService) -> None:
        if (resources := service.resources) is None:
            return
        uniform = self.random.uniform
        short = uniform(0, MAX_SHORT_FREEZE)
        seconds = self.random.choice([short, uniform(MAX_SHORT_FREEZE, MAX_LONG_FREEZE)])
        resources.process.stop()
        if seconds > HEARTBEAT_TIMEOUT:
            self._call_later(HEARTBEAT_TIMEOUT, resources.connection.close_sessions)
        self._call_later(seconds, self._resume, service, resources)

    def _resume(self, service: SupervisedService, resources: Resources) -> None:
        if service.resources is resources:
            self.trace(f"{resources.process.name} resumes")
            resources.process.resume(self.loop)

    def _call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(seconds, callback, *args, context=self._context)

    # The faults that do not depend on a call

    async def inject_faults(self) -> None:
        """Inject faults until the task is cancelled. Each scenario has some of their kinds."""
        all_kinds = (
            self._kill_one,
            self._freeze_one,
            self._stop_one,
            self._disconnect_one,
            self._purge,
        )
        kinds = [kind for kind in all_kinds if self.random.random() < 0.5]
        while kinds:
            await asyncio.sleep(self.random.uniform(0, 5))
            self.random.choice(kinds)()

    def _choose(self) -> SupervisedService:
        return self.random.choice(self.services)

    def _kill_one(self) -> None:
        service = self._choose()
        self._count("killed", service.name)
        self._crash(service)

    def _freeze_one(self) -> None:
        service = self._choose()
        self._count("stopped and resumed", service.name)
        self._freeze(service)

    def _stop_one(self) -> None:
        service = self._choose()
        if service.resources is not None:
            self._count("terminated", service.name)
            service.resources.process.call_soon(service.resources.stop.set)

    def _disconnect_one(self) -> None:
        service = self._choose()
        if service.resources is not None:
            self._count("disconnected from the broker", service.name)
            service.resources.connection.close_sessions()

    def _purge(self) -> None:
        names = [name for name in self.broker.queues if ".work." in name or "dispatcher" in name]
        name = self.random.choice(names)
        self._count("purged", name)
        self.broker.purge(name)

    def _count(self, event: str, name: str) -> None:
        self.faults.counts[event] += 1
        self.trace(f"{name} is {event}")
