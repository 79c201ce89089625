"""The start of a service as a copy of a process that has imported every service.

The imports are 1 s of CPU time for each start, and a suite starts hundreds of services. The copy
has its own session, environment, log and working directory, and then runs the same entry point.
`python -m tests.rig.fork_server` reads a request from each line, and writes the pid of the copy.
"""

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final

from harebell.contract.message import build_models
from harebell.dev.plan import ServiceKind, module_command
from harebell.dev.spawn import UMASK, OsUser, Process, identify, shifted_clock, start_process

MODULES: Final = {module_command(kind): f"harebell.{kind}" for kind in ServiceKind}
# The interpreter, the loader of libraries and `zoneinfo` read these variables once.
READ_AT_THE_START: Final = ("LD_PRELOAD", "PYTHONPATH", "PYTHONTZPATH")


def start_copy(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    directory: Path,
    user: OsUser | None = None,
) -> Process:
    """Start a service as a copy, or as a new process if a copy would differ from it."""
    module = MODULES.get(tuple(command))
    if module is None or user is not None or _differs(environment):
        return start_process(
            command, log=log, environment=environment, directory=directory, user=user
        )
    pid = _server.fork(
        module=module, log=str(log), environment=dict(environment), directory=str(directory)
    )
    return identify(pid) or Process(pid, "ended")


def _differs(environment: Mapping[str, str]) -> bool:
    own = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    wanted = shifted_clock() | dict(environment)
    return any(wanted.get(name) != own.get(name) for name in READ_AT_THE_START)


class _ForkServer:
    """The process that makes copies of itself. It starts at the first request."""

    def __init__(self) -> None:
        self._lock = Lock()  # tests start services from threads
        self._process: subprocess.Popen[str] | None = None

    def fork(self, **request: Any) -> int:
        with self._lock:
            if self._process is None:
                self._process = self._start()
            requests, pids = self._process.stdin, self._process.stdout
            assert requests is not None
            assert pids is not None
            print(json.dumps(request), file=requests, flush=True)
            pid = pids.readline()
            assert pid, "The process that makes copies has ended: its error is in the output."
            return int(pid)

    @staticmethod
    def _start() -> "subprocess.Popen[str]":
        process = subprocess.Popen(  # noqa: S603  # this module
            (sys.executable, "-m", __name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd="/",
            start_new_session=True,
            text=True,
        )
        atexit.register(process.communicate)
        return process


_server: Final = _ForkServer()


def serve() -> None:
    """Fork for each line of the standard input, until its end."""
    for module in MODULES.values():
        import_module(f"{module}.service")
    build_models()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes each ended copy
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run(**json.loads(line))
            return
        print(pid, flush=True)  # noqa: T201  # the response


def _run(*, module: str, log: str, environment: Mapping[str, str], directory: str) -> None:
    """Run the entry point of a service in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.umask(UMASK)
    os.chdir(directory)
    for number, (path, mode) in enumerate(
        ((os.devnull, os.O_RDONLY), (log, _APPEND), (log, _APPEND))
    ):
        descriptor = os.open(path, mode)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT

if __name__ == "__main__":
    serve()
