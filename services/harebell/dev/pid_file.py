"""A background process with a name and a pid file, which any later command finds again."""

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

from pydantic import BaseModel, ConfigDict, ValidationError

from harebell.dev import state
from harebell.dev.errors import StartFailed
from harebell.dev.logs import rotate, tail
from harebell.dev.spawn import (
    OsUser,
    Process,
    StartProcess,
    kill,
    start_process,
    stop_processes,
    tree,
)

POLL_INTERVAL = 0.05  # seconds between two readiness checks
TAIL_LINES = 20


class PidFile(BaseModel):
    """The content of a pid file."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start_id: str
    stop_timeout: float | None = None  # seconds after SIGTERM; None: the caller decides


class BackgroundProcess:
    """A process with the pid file `root/run/<folder>/<name>.json` and the log `<name>.log`."""

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        folder: str = "servers",
        start: StartProcess = start_process,
    ) -> None:
        self.name = name
        self._start = start
        self.log = root / "logs" / f"{name}.log"
        self._pid_file = root / "run" / folder / f"{name}.json"

    @property
    def process(self) -> Process | None:
        """The running process, or None if the pid file is missing or older than the process."""
        known = self._read()
        if known is None:
            return None
        process = Process(known.pid, known.start_id)
        return process if process.is_running else None

    @property
    def stop_timeout(self) -> float | None:
        """The time [s] that the started process has for its stop, or None if none is known."""
        known = self._read()
        return None if known is None else known.stop_timeout

    @property
    def has_ended(self) -> bool:
        """True if the process was started and ended without a stop."""
        return self._pid_file.exists() and self.process is None

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        user: OsUser | None = None,
        stop_timeout: float | None = None,
    ) -> Process:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        rotate(self.log)
        process = self._start(
            command, log=self.log, environment=environment, directory=directory, user=user
        )
        record = PidFile(pid=process.pid, start_id=process.start_id, stop_timeout=stop_timeout)
        state.write(self._pid_file, record.model_dump_json())
        return process

    def await_ready(self, ready: Callable[[], bool], *, limit: float) -> None:
        """Wait until `ready` returns true. Raise `StartFailed` at the limit or at the end."""
        deadline = monotonic() + limit
        while not ready():
            if self.process is None:
                raise StartFailed(
                    self.name, "The process ended during its start.", tail(self.log, TAIL_LINES)
                )
            if monotonic() > deadline:
                reason = f"The process was not ready within {limit:.0f} s."
                raise StartFailed(self.name, reason, tail(self.log, TAIL_LINES))
            sleep(POLL_INTERVAL)

    def stop(self, *, grace: float, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal, wait `grace` seconds, then kill the process."""
        process = self.process
        if process is not None:
            stop_processes([process], grace=grace, stop_signal=stop_signal)
        self.remove_pid_file()

    def kill(self) -> None:
        """Kill the process and its descendants with SIGKILL, as a power cut does."""
        process = self.process
        if process is not None:
            kill(tree(process))
        self.remove_pid_file()

    def remove_pid_file(self) -> None:
        """Delete the pid file of an ended process."""
        self._pid_file.unlink(missing_ok=True)

    def _read(self) -> PidFile | None:
        try:
            return PidFile.model_validate_json(self._pid_file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
