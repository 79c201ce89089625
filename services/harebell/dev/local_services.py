"""Single services on given servers, which tests start, kill and start again."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Final

from harebell.contract.errors import InvalidInput
from harebell.dev.plan import (
    STOP_TIMEOUT,
    Command,
    PlannedService,
    ServiceCounts,
    ServiceKind,
    module_command,
    name_of,
    service_environment,
)
from harebell.dev.ports import choose_ports, release
from harebell.dev.processes import ServiceProcesses
from harebell.dev.spawn import Process, StartProcess, start_process
from harebell.runtime.settings import ExecutorSettings

MAX_SHUTDOWN_WAIT: Final = timedelta(hours=1)  # the longest attempt


@dataclass(frozen=True, slots=True)
class StartedService:
    """A started service process."""

    name: str
    pid: int
    port: int


class LocalServices:
    """Services by kind and number, without a supervisor.

    A service keeps its health port during the lifetime of this object.
    """

    def __init__(
        self,
        root: Path,
        *,
        amqp_url: str,
        database_url: str,
        command: Command = module_command,
        environ: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
        start: StartProcess = start_process,
    ) -> None:
        self.root = root.absolute()
        self.processes = ServiceProcesses(self.root, start=start)
        self._amqp_url = amqp_url
        self._database_url = database_url
        self._command = command
        self._environ = os.environ if environ is None else environ
        self._ports = dict(ports or {})
        self._port_lock = Lock()  # tests start several services from threads

    def plan(
        self, kind: ServiceKind, number: int = 1, *, environment: Mapping[str, str] | None = None
    ) -> PlannedService:
        """Return the plan of a service. `environment` replaces every other value."""
        name = name_of(kind, number)
        port = self._port_of(name)
        settings = service_environment(
            kind,
            number,
            port=port,
            amqp_url=self._amqp_url,
            database_url=self._database_url,
            environ=self._environ,
        )
        variables = settings | dict(environment or {})
        return PlannedService(
            name=name,
            command=self._command(kind),
            environment=variables,
            port=port,
            stop_timeout=_stop_timeout(kind, variables),
        )

    def start(
        self,
        kind: ServiceKind,
        number: int = 1,
        *,
        environment: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> StartedService:
        """Start one service and, with `ready`, wait until it is ready."""
        service = self.plan(kind, number, environment=environment)
        process = self.processes.start(service)
        if ready:
            self.processes.await_ready([service], cannot_get_ready=lambda: not process.is_running)
        return StartedService(service.name, process.pid, service.port)

    def start_all(
        self, counts: ServiceCounts | None = None, *, environment: Mapping[str, str] | None = None
    ) -> list[StartedService]:
        """Start the services of `counts` (default: one of each) and wait until all are ready."""
        members = (counts or ServiceCounts()).members()
        services = [self.plan(kind, number, environment=environment) for kind, number in members]
        started = [(service, self.processes.start(service)) for service in services]
        self.processes.await_ready(
            services, cannot_get_ready=lambda: not all(process.is_running for _, process in started)
        )
        return [
            StartedService(service.name, process.pid, service.port) for service, process in started
        ]

    def process(self, name: str) -> Process | None:
        return self.processes.process(name)

    def kill(self, name: str) -> None:
        """Kill one service with SIGKILL."""
        self.processes.kill(name)

    def stop(self, *names: str) -> None:
        """Stop the named services, or all: SIGTERM, then SIGKILL after STOP_TIMEOUT."""
        self.processes.stop(names or None, grace=STOP_TIMEOUT)

    def close(self) -> None:
        """Kill every service and release the ports."""
        self.processes.stop(grace=0)
        release(self._ports.values())

    def _port_of(self, name: str) -> int:
        with self._port_lock:
            if (
                name not in self._ports or self.process(name) is None
            ):  # a running service uses its port
                self._ports |= choose_ports([name], seed=str(self.root), remembered=self._ports)
            return self._ports[name]


def _stop_timeout(kind: ServiceKind, environment: Mapping[str, str]) -> float:
    """Return the seconds after SIGTERM until a service is killed.

    An executor gets the time that its own settings grant to running attempts, and then the time
    of every service for the rest of its stop.
    """
    if kind is not ServiceKind.EXECUTOR:
        return STOP_TIMEOUT
    try:
        granted = ExecutorSettings.load(environment).shutdown_timeout
    except InvalidInput:  # the executor does not start, and its log contains the error
        return STOP_TIMEOUT
    return min(granted, MAX_SHUTDOWN_WAIT).total_seconds() + STOP_TIMEOUT
