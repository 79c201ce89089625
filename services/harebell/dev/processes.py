"""The service processes of one stack: started, found again, asked for their health, stopped."""

import signal
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

from harebell.dev.errors import NotReady
from harebell.dev.logs import tail
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.plan import PlannedService
from harebell.dev.ports import LOOPBACK
from harebell.dev.spawn import Process, stop_processes

GRACE_S = 10.0  # what services get to finish after SIGTERM, all together
READY_S = 60.0
ANSWER_S = 1.0
LOOK_S = 0.1
TAIL_LINES = 15
FOLDER = "services"
HTTP_OK = 200


class ServiceProcesses:
    """Known by their pid files alone, so the supervisor, the command line and tests all see it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def start(self, service: PlannedService) -> Process:
        return self._daemon(service.name).start(
            service.command, environment=service.environment, directory=self.root
        )

    def process(self, name: str) -> Process | None:
        return self._daemon(name).process

    def processes(self) -> dict[str, Process]:
        """Every living service by its name."""
        found = {name: self.process(name) for name in self._known()}
        return {name: process for name, process in found.items() if process is not None}

    def kill(self, name: str) -> None:
        """Kill outright (-9)."""
        self._daemon(name).kill()

    def stop(self, names: Sequence[str] | None = None, *, grace: float = GRACE_S) -> list[str]:
        """Stop these, or all, at once; say which were running."""
        living = self.processes()
        chosen = [name for name in living if names is None or name in names]
        stop_processes([living[name] for name in chosen], grace=grace, polite=signal.SIGTERM)
        for name in self._known() if names is None else names:
            self._daemon(name).forget()
        return chosen

    def ended(self, name: str) -> bool:
        """Whether it was started and has ended by itself."""
        return self._daemon(name).ended

    def await_ready(
        self,
        services: Sequence[PlannedService],
        *,
        limit: float = READY_S,
        hopeless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Return when all answer 200 on `/readyz`; name those that do not in time.

        `hopeless` ends the wait early, when nothing can change any more.
        """
        deadline = monotonic() + limit
        waiting = list(services)
        while waiting := [service for service in waiting if not is_ready(service.port)]:
            if monotonic() > deadline or hopeless():
                raise NotReady({each.name: self._ending(each.name) for each in waiting})
            sleep(LOOK_S)

    def _known(self) -> list[str]:
        return sorted(file.stem for file in (self.root / "run" / FOLDER).glob("*.json"))

    def _ending(self, name: str) -> str:
        return tail(self._daemon(name).log, TAIL_LINES)

    def _daemon(self, name: str) -> BackgroundProcess:
        return BackgroundProcess(name, self.root, folder=FOLDER)


def is_ready(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTP_OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
