"""One background process by name: started, found again through its pid file, stopped, killed."""

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

from pydantic import BaseModel, ConfigDict, ValidationError

from harebell.dev import state
from harebell.dev.errors import StartFailed
from harebell.dev.logs import rotate, tail
from harebell.dev.spawn import Account, Process, kill, start_process, stop_processes, tree

LOOK_S = 0.05  # between two looks at a process that is to get ready
TAIL_LINES = 20


class PidFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    pid: int
    born: str


class BackgroundProcess:
    """`name` is also the name of its pid file, in `root/run/<folder>`, and of its log."""

    def __init__(self, name: str, root: Path, *, folder: str = "servers") -> None:
        self.name = name
        self.log = root / "logs" / f"{name}.log"
        self._pid_file = root / "run" / folder / f"{name}.json"

    @property
    def process(self) -> Process | None:
        """The living process; what a crash or a reboot left in the pid file is nobody."""
        try:
            known = PidFile.model_validate_json(self._pid_file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        process = Process(known.pid, known.born)
        return process if process.alive else None

    @property
    def ended(self) -> bool:
        """Whether it was started, and ended without being told to."""
        return self._pid_file.exists() and self.process is None

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        account: Account | None = None,
    ) -> Process:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        rotate(self.log)
        process = start_process(
            command, log=self.log, environment=environment, directory=directory, account=account
        )
        record = PidFile(pid=process.pid, born=process.born).model_dump_json()
        state.write(self._pid_file, record)
        return process

    def await_ready(self, ready: Callable[[], bool], *, limit: float) -> None:
        """Return when `ready` says so; raise, with the log's end, when the process ends first."""
        deadline = monotonic() + limit
        while not ready():
            if self.process is None:
                raise StartFailed(self.name, "ended while starting", tail(self.log, TAIL_LINES))
            if monotonic() > deadline:
                reason = f"was not ready within {limit:.0f} s"
                raise StartFailed(self.name, reason, tail(self.log, TAIL_LINES))
            sleep(LOOK_S)

    def stop(self, *, grace: float, polite: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, wait `grace` seconds, kill what is left."""
        process = self.process
        if process is not None:
            stop_processes([process], grace=grace, polite=polite)
        self.forget()

    def kill(self) -> None:
        """Kill it and its descendants outright (-9), as a power cut would."""
        process = self.process
        if process is not None:
            kill(tree(process))
        self.forget()

    def forget(self) -> None:
        """Drop the pid file of a process that has ended."""
        self._pid_file.unlink(missing_ok=True)
