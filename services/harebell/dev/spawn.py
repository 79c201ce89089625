"""Processes that continue after the command that started them, and signals to them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict

POLL_INTERVAL = 0.05  # seconds between two checks of an ending process
UMASK = 0o077  # of every process; its files contain messages, logs and credentials
KILL_TIMEOUT = 10.0  # seconds until the kernel has removed a killed process
# The variables of `faketime`. The file of its shared memory may belong to another user.
CLOCK_VARIABLES = ("LD_PRELOAD", "FAKETIME", "FAKETIME_DONT_FAKE_MONOTONIC")

# The children of this process. A check of an ended child reaps it.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class OsUser:
    """A system user for a command, which only root can select."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Process:
    """A pid with the start of its process, because the kernel uses pids again."""

    pid: int
    start_id: str

    @property
    def is_running(self) -> bool:
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        if not self.is_running:
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


# The signature of `start_process`.
StartProcess: TypeAlias = Callable[..., Process]


def start_process(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    directory: Path,
    user: OsUser | None = None,
) -> Process:
    """Start a command in a new session and append its output to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603  # fixed command
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, **shifted_clock()},
            cwd=directory,
            start_new_session=True,
            umask=UMASK,
            **_credentials(user),
        )
    _children[child.pid] = child
    return Process(child.pid, _start_id(_stat(child.pid)))


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    user: OsUser | None = None,
    input_text: str = "",
    log: Path | None = None,
) -> int:
    """Run a command and return its exit code."""
    with (log or Path(os.devnull)).open("ab") as output:
        completed = subprocess.run(  # noqa: S603  # fixed command
            command,
            input=input_text.encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, **shifted_clock()},
            cwd="/",
            check=False,
            umask=UMASK,
            **_credentials(user),
        )
    return completed.returncode


def shifted_clock() -> dict[str, str]:
    """Return the variables with which `faketime` shifts the clock of this process, if it does."""
    if "FAKETIME" not in os.environ:
        return {}
    return {name: os.environ[name] for name in CLOCK_VARIABLES if name in os.environ}


def identify(pid: int) -> Process | None:
    """Return the running process with this pid, or None for a zombie or an unused pid."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in "ZX" else Process(pid, _start_id(fields))


def tree(root: Process) -> list[Process]:
    """Return the process and its descendants, parents first."""
    if not root.is_running:
        return []
    children: dict[int, list[int]] = {}
    for pid in _pids():
        try:
            children.setdefault(int(_stat(pid)[_PARENT]), []).append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, waiting = [root], [root.pid]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            process = identify(pid)
            if process is not None:
                found.append(process)
                waiting.append(pid)
    return found


def stop_processes(roots: Iterable[Process], *, grace: float, stop_signal: signal.Signals) -> None:
    """Send the signal to all, wait `grace` seconds in total, then kill the remaining processes."""
    running = [root for root in roots if root.is_running]
    processes_and_descendants = [process for root in running for process in tree(root)]
    for root in running:
        root.send(stop_signal)
    _await_end(running, grace)
    kill(processes_and_descendants)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL and wait until the processes have ended."""
    remaining = [process for process in processes if process.is_running]
    for process in remaining:
        process.send(signal.SIGKILL)
    _await_end(remaining, KILL_TIMEOUT)


def _await_end(processes: Sequence[Process], limit: float) -> None:
    deadline = time.monotonic() + limit
    while any(process.is_running for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)


class _Credentials(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _credentials(user: OsUser | None) -> _Credentials:
    if user is None:
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": []}


# Positions in /proc/<pid>/stat after the command name (proc(5) counts the pid as field 1).
_STATE, _PARENT, _START = 0, 1, 19


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()  # the name may contain spaces and parentheses


def _start_id(fields: Sequence[str]) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{fields[_START]}"  # clock ticks since the boot


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
