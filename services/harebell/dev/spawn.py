"""Processes that outlive the command which started them: the only place that spawns or signals."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

LOOK_S = 0.05  # between two looks at a process that is to end
DYING_S = 10.0  # what the kernel may take to bury a killed process

# Children of this very process, so that a dead one is reaped when it is asked about.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class Account:
    """A system account to run a command as; only root may choose one."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Process:
    """A pid and when it was born: a later process with the same pid is another one."""

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


def start_process(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    directory: Path,
    account: Account | None = None,
) -> Process:
    """Start a command in a session of its own, its output appended to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 (the command is ours)
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
            **_as(account),
        )
    _children[child.pid] = child
    return Process(child.pid, _born(_stat(child.pid)))


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    account: Account | None = None,
    given: str = "",
    log: Path | None = None,
) -> int:
    """Run a short command to its end and return its exit code."""
    with (log or Path(os.devnull)).open("ab") as output:
        done = subprocess.run(  # noqa: S603  # the command is ours
            command,
            input=given.encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd="/",
            check=False,
            **_as(account),
        )
    return done.returncode


def identify(pid: int) -> Process | None:
    """The living process with this pid; a zombie is not one."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in "ZX" else Process(pid, _born(fields))


def tree(root: Process) -> list[Process]:
    """The process and all its descendants, parents first."""
    if not root.alive:
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


def stop_processes(roots: Iterable[Process], *, grace: float, polite: signal.Signals) -> None:
    """Signal all at once, give them `grace` seconds together, then kill what is left of them."""
    living = [root for root in roots if root.alive]
    families = [process for root in living for process in tree(root)]
    for root in living:
        root.send(polite)
    _await_end(living, grace)
    kill(families)


def kill(processes: Iterable[Process]) -> None:
    """Kill outright (-9) and return when they are gone."""
    doomed = [process for process in processes if process.alive]
    for process in doomed:
        process.send(signal.SIGKILL)
    _await_end(doomed, DYING_S)


def _await_end(processes: Sequence[Process], limit: float) -> None:
    deadline = time.monotonic() + limit
    while any(process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(LOOK_S)


class _Credentials(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _as(account: Account | None) -> _Credentials:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


# Places in /proc/<pid>/stat after the command name (proc(5) counts from the pid, as field 1).
_STATE, _PARENT, _START = 0, 1, 19


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()  # the name may hold spaces and parentheses


def _born(fields: Sequence[str]) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{fields[_START]}"  # clock ticks since that boot


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
