"""A peer: a process that sends runs, workers that record their starts, and a store."""

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
from tests.benchmarks.machine import CpuTime
from tests.benchmarks.starts import DRAIN_TIMEOUT, clear, read_starts

from harebell.dev.pid_file import BackgroundProcess

PROGRAMS: Final = Path(__file__).parent / "programs"
# The variables with the URLs of the store, and of the database of results.
STORE: Final = "BENCHMARK_STORE"
RESULTS: Final = "BENCHMARK_RESULTS"
INSTALL_TIMEOUT: Final = 600.0
PRODUCER: Final = "producer"  # the name of the sending process
SINGLE: Final = "single"
BULK: Final = "bulk"
WARM_UP_RUNS: Final = 500  # before the first measurement


@dataclass(frozen=True)
class Programs:
    """Command lines in the folder of the peer. `workers` is the number of worker processes."""

    sender: Sequence[str]
    worker: Sequence[str]
    workers: int


@dataclass(frozen=True, kw_only=True)
class Store:
    """A server that keeps what a peer sends, or its results. `name` is that of its CPU time."""

    name: str
    url: str
    pid: int


@dataclass(frozen=True)
class Sender:
    """A process that responds to each line with one line of JSON, and first when it is ready."""

    process: subprocess.Popen[str]

    def send(self, number: int, *, first: float = 0.0, step: float = 0.0, mode: str = BULK) -> None:
        """Send runs that are due at `first`, in seconds since 1970, and every `step` seconds.

        With `first` 0, each run is due at the time of sending.
        With the mode `single`, each run is one call of the library of the peer.
        """
        _stream(self.process.stdin).write(f"{number} {first!r} {step!r} {mode}\n")
        _stream(self.process.stdin).flush()
        self.response()

    def response(self) -> Any:  # JSON
        stdout = _stream(self.process.stdout)
        ready, _, _ = select([stdout], [], [], DRAIN_TIMEOUT)
        line = stdout.readline() if ready else ""
        assert line, (
            f"The process {self.process.args!r} has ended or took longer than {DRAIN_TIMEOUT:g} s."
        )
        return orjson.loads(line)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A running peer after its warm-up."""

    name: str
    starts: Path
    sender: Sender
    pids: Mapping[str, int]
    versions: dict[str, str]

    @classmethod
    @contextmanager
    def open(
        cls, name: str, folder: Path, programs: Programs, *, stores: Mapping[str, Store]
    ) -> Iterator["Peer"]:
        """Start a peer. `stores` contains its stores by the variables with their URLs."""
        starts = folder / "starts"
        starts.mkdir()
        urls = {variable: each.url for variable, each in stores.items()}
        environment = {**os.environ, **urls, tasks.FOLDER: str(starts)}
        workers = [BackgroundProcess(f"worker-{n}", folder) for n in range(1, programs.workers + 1)]
        with ExitStack() as stack:
            pids = {each.name: each.pid for each in stores.values()}
            for each in workers:
                stack.callback(each.kill)
                process = each.start(programs.worker, environment=environment, directory=folder)
                pids[each.name] = process.pid
            sender = stack.enter_context(_sender(programs.sender, environment, folder))
            pids[PRODUCER] = sender.process.pid
            peer = cls(
                name=name, starts=starts, sender=sender, pids=pids, versions=sender.response()
            )
            peer.warm(workers)
            yield peer

    def warm(self, workers: Sequence[BackgroundProcess]) -> None:
        self.sender.send(WARM_UP_RUNS)
        for each in workers:
            each.await_ready(
                lambda: len(read_starts(self.starts)) >= WARM_UP_RUNS, limit=DRAIN_TIMEOUT
            )
        clear(self.starts)

    def spent(self) -> CpuTime:
        return CpuTime.by(self.pids)


def install_programs(name: str, folder: Path, *commands: Sequence[str]) -> None:
    """Copy the programs of the peer to `folder` and install their dependencies there."""
    shutil.copytree(PROGRAMS / name, folder)
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT)  # noqa: S603  # a fixed command


@contextmanager
def _sender(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Iterator[Sender]:
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603  # a fixed command
        command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            yield Sender(process)
        finally:
            process.kill()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
