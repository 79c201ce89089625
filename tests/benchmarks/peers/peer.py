"""A peer: a process that sends, workers that write down what they start, and a store."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import IO, Any, Final

import orjson
from tests.benchmarks import tasks
from tests.benchmarks.machine import Spent
from tests.benchmarks.starts import DRAIN_TIMEOUT, forget, read

from harebell.dev.pid_file import BackgroundProcess

PROGRAMS: Final = Path(__file__).parent / "programs"
STORE: Final = "BENCHMARK_STORE"  # the variable with its URL
INSTALL_S: Final = 600.0
WARM: Final = 500  # runs before anything is counted


@dataclass(frozen=True)
class Programs:
    """Command lines, in the peer's folder; `workers`: processes."""

    sender: Sequence[str]
    worker: Sequence[str]
    workers: int


@dataclass(frozen=True)
class Sender:
    """A process that answers each line with one of JSON, the first when it is ready."""

    process: subprocess.Popen[str]

    def send(self, number: int, *, first: float = 0.0, step: float = 0.0) -> None:
        """Due at `first`, in seconds since 1970, and every `step` seconds; 0: when it is sent."""
        _of(self.process.stdin).write(f"{number} {first!r} {step!r}\n")
        _of(self.process.stdin).flush()
        self.response()

    def response(self) -> Any:  # JSON
        stdout = _of(self.process.stdout)
        ready, _, _ = select([stdout], [], [], DRAIN_TIMEOUT)
        line = stdout.readline() if ready else ""
        assert line, f"{self.process.args!r} has ended, or took longer than {DRAIN_TIMEOUT:g} s"
        return orjson.loads(line)


@dataclass(frozen=True)
class Peer:
    """One that is running, and warm."""

    name: str
    starts: Path
    sender: Sender
    pids: Mapping[str, int]
    versions: dict[str, str]

    @classmethod
    @contextmanager
    def open(
        cls, name: str, folder: Path, programs: Programs, *, store: tuple[str, int]
    ) -> Iterator["Peer"]:
        """`store`: its URL and its process."""
        url, pid = store
        starts = folder / "starts"
        starts.mkdir()
        environment = {**os.environ, STORE: url, tasks.FOLDER: str(starts)}
        workers = [BackgroundProcess(f"worker-{n}", folder) for n in range(1, programs.workers + 1)]
        with ExitStack() as stack:
            pids = {"store": pid}
            for each in workers:
                stack.callback(each.kill)
                process = each.start(programs.worker, environment=environment, directory=folder)
                pids[each.name] = process.pid
            sender = stack.enter_context(_sender(programs.sender, environment, folder))
            pids["producer"] = sender.process.pid
            peer = cls(name, starts, sender, pids, versions=sender.response())
            peer.warm(workers)
            yield peer

    def warm(self, workers: Sequence[BackgroundProcess]) -> None:
        self.sender.send(WARM)
        for each in workers:
            each.await_ready(lambda: len(read(self.starts)) >= WARM, limit=DRAIN_TIMEOUT)
        forget(self.starts)

    def spent(self) -> Spent:
        return Spent.by(self.pids)


def installed(name: str, folder: Path, *commands: Sequence[str]) -> None:
    """The peer's programs in a folder of their own, and what they need beside them."""
    shutil.copytree(PROGRAMS / name, folder)
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S)  # noqa: S603  # ours


@contextmanager
def _sender(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Iterator[Sender]:
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603  # ours
        command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            yield Sender(process)
        finally:
            process.kill()


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
