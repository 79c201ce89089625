"""The service processes of one stack: start, readiness, stop."""

import signal
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

from harebell.dev.errors import NotReady
from harebell.dev.logs import tail
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.plan import STOP_TIMEOUT, PlannedService
from harebell.dev.ports import LOOPBACK
from harebell.dev.spawn import Process, StartProcess, start_process, stop_processes

READY_TIMEOUT = 60.0
RESPONSE_TIMEOUT = 1.0
POLL_INTERVAL = 0.1
TAIL_LINES = 15
FOLDER = "services"
HTTP_OK = 200


class ServiceProcesses:
    """The services of a stack. The pid files are the only state, so every process sees them."""

    def __init__(self, root: Path, *, start: StartProcess = start_process) -> None:
        self.root = root
        self._start = start

    def start(self, service: PlannedService) -> Process:
        return self._process_of(service.name).start(
            service.command,
            environment=service.environment,
            directory=self.root,
            stop_timeout=service.stop_timeout,
        )

    def process(self, name: str) -> Process | None:
        return self._process_of(name).process

    def processes(self) -> dict[str, Process]:
        """Return the running services by name."""
        found = {name: self.process(name) for name in self._known()}
        return {name: process for name, process in found.items() if process is not None}

    def kill(self, name: str) -> None:
        """Kill a service with SIGKILL."""
        self._process_of(name).kill()

    def stop_timeout(self, names: Iterable[str] | None = None) -> float:
        """Return the longest stop timeout [s] of the named services, or of all running ones."""
        chosen = self.processes() if names is None else names
        timeouts = (self._process_of(name).stop_timeout for name in chosen)
        return max(filter(None, timeouts), default=STOP_TIMEOUT)

    def stop(self, names: Sequence[str] | None = None, *, grace: float | None = None) -> list[str]:
        """Stop the named services, or all of them, and return the names of those that ran.

        Kill the services that run after `grace` seconds, by default their longest stop timeout.
        """
        running = self.processes()
        chosen = [name for name in running if names is None or name in names]
        stop_processes(
            [running[name] for name in chosen],
            grace=self.stop_timeout(chosen) if grace is None else grace,
            stop_signal=signal.SIGTERM,
        )
        for name in self._known() if names is None else names:
            self._process_of(name).remove_pid_file()
        return chosen

    def has_ended(self, name: str) -> bool:
        """Return whether a service was started and ended without a stop."""
        return self._process_of(name).has_ended

    def await_ready(
        self,
        services: Sequence[PlannedService],
        *,
        limit: float = READY_TIMEOUT,
        cannot_get_ready: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until all services respond with 200 on `/readyz`. Raise `NotReady` at the limit.

        `cannot_get_ready` ends the wait early.
        """
        deadline = monotonic() + limit
        waiting = list(services)
        while waiting := [service for service in waiting if not is_ready(service.port)]:
            if monotonic() > deadline or cannot_get_ready():
                break
            sleep(POLL_INTERVAL)
        if waiting or cannot_get_ready():  # another process can respond on the port of an ended one
            raise NotReady({each.name: self._log_tail(each.name) for each in waiting or services})

    def _known(self) -> list[str]:
        return sorted(file.stem for file in (self.root / "run" / FOLDER).glob("*.json"))

    def _log_tail(self, name: str) -> str:
        return tail(self._process_of(name).log, TAIL_LINES)

    def _process_of(self, name: str) -> BackgroundProcess:
        return BackgroundProcess(name, self.root, folder=FOLDER, start=self._start)


def is_ready(port: int) -> bool:
    """Return whether a service responds with 200 on `/readyz`."""
    connection = HTTPConnection(LOOPBACK, port, timeout=RESPONSE_TIMEOUT)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTP_OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
