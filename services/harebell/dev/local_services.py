"""Single services on given servers, by hand: what tests start, kill and start again."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from harebell.dev.plan import (
    Command,
    Counts,
    PlannedService,
    ServiceKind,
    environment_for,
    module_command,
    name_of,
)
from harebell.dev.ports import choose
from harebell.dev.processes import ServiceProcesses
from harebell.dev.spawn import Process


@dataclass(frozen=True, slots=True)
class Member:
    """A service that was started."""

    name: str
    pid: int
    port: int


class LocalServices:
    """Services by kind and number; nobody restarts them here but the caller.

    A service keeps its health port for as long as this object lives.
    """

    def __init__(
        self,
        root: Path,
        *,
        amqp_url: str,
        database_url: str,
        command: Command = module_command,
        caller: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self.root = root.absolute()
        self.crew = ServiceProcesses(self.root)
        self._amqp_url = amqp_url
        self._database_url = database_url
        self._command = command
        self._caller = os.environ if caller is None else caller
        self._ports = dict(ports or {})
        self._choosing = Lock()  # of ports: tests start several at once, from threads

    def plan(
        self, kind: ServiceKind, number: int = 1, *, environment: Mapping[str, str] | None = None
    ) -> PlannedService:
        """The service as it would be started; `environment` has the last word."""
        name = name_of(kind, number)
        port = self._port_of(name)
        settings = environment_for(
            kind,
            number,
            port=port,
            amqp_url=self._amqp_url,
            database_url=self._database_url,
            caller=self._caller,
        )
        return PlannedService(
            name=name,
            command=self._command(kind),
            environment=settings | dict(environment or {}),
            port=port,
        )

    def start(
        self,
        kind: ServiceKind,
        number: int = 1,
        *,
        environment: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> Member:
        """Start one and, unless told otherwise, return when it is ready."""
        service = self.plan(kind, number, environment=environment)
        process = self.crew.start(service)
        if ready:
            self.crew.await_ready([service], hopeless=lambda: not process.alive)
        return Member(service.name, process.pid, service.port)

    def start_all(
        self, counts: Counts | None = None, *, environment: Mapping[str, str] | None = None
    ) -> list[Member]:
        """Start one of each kind, or as many as `counts` says; return when all are ready."""
        members = (counts or Counts()).members()
        services = [self.plan(kind, number, environment=environment) for kind, number in members]
        started = [(service, self.crew.start(service)) for service in services]
        self.crew.await_ready(
            services, hopeless=lambda: not all(process.alive for _, process in started)
        )
        return [Member(service.name, process.pid, service.port) for service, process in started]

    def process(self, name: str) -> Process | None:
        return self.crew.process(name)

    def kill(self, name: str) -> None:
        """Kill one outright (-9)."""
        self.crew.kill(name)

    def stop(self, *names: str) -> None:
        """Stop these, or all when none is named: SIGTERM, then -9 after the grace."""
        self.crew.stop(names or None)

    def _port_of(self, name: str) -> int:
        with self._choosing:
            if name not in self._ports or self.process(name) is None:  # a living one holds its port
                self._ports |= choose([name], seed=str(self.root), remembered=self._ports)
            return self._ports[name]
