"""The two sources of the verdict: the ledger through the client, and the file of the target."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from harebell.client import Client
from harebell.dev.demo.commands import DemoError
from harebell.dev.demo.schedules import DemoSchedule
from harebell.dev.demo.verdict import LedgerRun, TargetCall
from harebell.dev.logs import tail

POLL_INTERVAL = 0.3  # seconds between two queries of the ledger


Runs: TypeAlias = Sequence[LedgerRun]


class LedgerReader:
    """The runs of the demo in the ledger."""

    def __init__(self, harebell: Client, schedules: Sequence[DemoSchedule]) -> None:
        self._harebell = harebell
        self._schedules = schedules

    async def follow(
        self,
        until: Callable[[Runs], bool],
        *,
        limit: float,
        show: Callable[[Runs], None] = lambda _: None,
    ) -> bool:
        """Query the runs until `until` returns true. Return False after `limit` seconds."""
        deadline = monotonic() + limit
        while True:
            runs = await self.runs()
            show(runs)
            if until(runs):
                return True
            if monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_INTERVAL)

    async def runs(self) -> list[LedgerRun]:
        """Return all runs in the order of their due times."""
        runs_of_each = await asyncio.gather(
            *(self._runs_of(schedule.key) for schedule in self._schedules)
        )
        return sorted((run for runs in runs_of_each for run in runs), key=lambda run: run.due_at)

    async def attempts(self) -> dict[LedgerRun, int]:
        """Return every run with the number of its attempts, including replays."""
        return {run: await self._attempt_count(run) for run in await self.runs()}

    async def _attempt_count(self, run: LedgerRun) -> int:
        return len((await self._harebell.run(run.run_id)).attempts)

    async def _runs_of(self, key: str) -> list[LedgerRun]:
        return [LedgerRun.of(view) async for view in self._harebell.runs(key=key)]


TARGET = Path(__file__).with_name("target.py")
ISOLATED = ("-I", "-S")  # without access to the modules of Harebell
END_TIMEOUT = 5.0  # seconds after the end of its input
TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """The process of the target. The verdict uses only the file `calls.jsonl` in its folder."""

    folder: Path
    pid: int
    port: int

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["TargetProcess"]:
        """Run the target within the context. The target ends with its input."""
        folder.mkdir(parents=True)
        log = folder / "target.log"
        command = [sys.executable, *ISOLATED, str(TARGET), str(_calls(folder)), str(_fixed(folder))]
        with (
            log.open("wb") as errors,
            subprocess.Popen(  # noqa: S603  # fixed command
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C ends the demo, and the demo ends the target
            ) as process,
        ):
            try:
                yield cls(folder, process.pid, _port(process, log))
            finally:
                _stop(process)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def file(self) -> Path:
        return _calls(self.folder)

    def fix(self) -> None:
        """Let `/broken` succeed from now on."""
        _fixed(self.folder).touch()

    def calls(self) -> list[TargetCall]:
        """Return the calls in the order of their arrival."""
        with self.file.open(encoding="utf-8") as lines:
            return [TargetCall.parse(line) for line in lines]


def _calls(folder: Path) -> Path:
    return folder / "calls.jsonl"


def _fixed(folder: Path) -> Path:
    return folder / "fixed"


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    line = process.stdout.readline() if process.stdout else b""
    if not line:
        raise DemoError("The target must start, but its process ended.", tail(log, TAIL_LINES))
    return int(line)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
