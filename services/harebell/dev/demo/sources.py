"""The ledger as the demo reads it: through the client's queries, like anyone's."""

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
from harebell.dev.demo.commands import DemoFailed
from harebell.dev.demo.schedules import DemoSchedule
from harebell.dev.demo.verdict import LedgerRun, TargetCall
from harebell.dev.logs import tail

LOOK_S = 0.3  # between two looks at the ledger


Runs: TypeAlias = Sequence[LedgerRun]


class LedgerReader:
    """What the ledger says of the demo's own schedules."""

    def __init__(self, harebell: Client, cast: Sequence[DemoSchedule]) -> None:
        self._harebell = harebell
        self._cast = cast

    async def follow(
        self,
        until: Callable[[Runs], bool],
        *,
        limit: float,
        show: Callable[[Runs], None] = lambda _: None,
    ) -> bool:
        """Look again and again; False when `limit` seconds were not enough."""
        deadline = monotonic() + limit
        while True:
            runs = await self.runs()
            show(runs)
            if until(runs):
                return True
            if monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_S)

    async def runs(self) -> list[LedgerRun]:
        """Soonest due first."""
        of_each = await asyncio.gather(*(self._runs_of(scene.key) for scene in self._cast))
        return sorted((run for runs in of_each for run in runs), key=lambda run: run.due_at)

    async def attempts(self) -> dict[LedgerRun, int]:
        """Every run, and how often it was tried in all its series."""
        return {run: await self._tried(run) for run in await self.runs()}

    async def _tried(self, run: LedgerRun) -> int:
        return len((await self._harebell.run(run.run_id)).attempts)

    async def _runs_of(self, key: str) -> list[LedgerRun]:
        return [LedgerRun.of(view) async for view in self._harebell.runs(key=key)]


TARGET = Path(__file__).with_name("target.py")
ISOLATED = ("-I", "-S")  # it could not import Harebell if it wanted to
END_S = 5.0  # what it may take to end once its input is closed
TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """`calls.jsonl` in its folder is all that the verdict believes about what was done."""

    folder: Path
    pid: int
    port: int

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["TargetProcess"]:
        """No process is left behind, however this one ends: closing its input ends it."""
        folder.mkdir(parents=True)
        log = folder / "target.log"
        command = [sys.executable, *ISOLATED, str(TARGET), str(_calls(folder)), str(_fixed(folder))]
        with (
            log.open("wb") as errors,
            subprocess.Popen(  # noqa: S603  # the command is ours
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a ^C is for the demo; the target ends after it
            ) as process,
        ):
            try:
                yield cls(folder, process.pid, _port(process, log))
            finally:
                _end(process)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def file(self) -> Path:
        return _calls(self.folder)

    def fix(self) -> None:
        """From now on `/broken` answers well."""
        _fixed(self.folder).touch()

    def calls(self) -> list[TargetCall]:
        """In the order in which they came."""
        with self.file.open(encoding="utf-8") as lines:
            return [TargetCall.parse(line) for line in lines]


def _calls(folder: Path) -> Path:
    return folder / "calls.jsonl"


def _fixed(folder: Path) -> Path:
    return folder / "fixed"


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    line = process.stdout.readline() if process.stdout else b""
    if not line:
        raise DemoFailed("the target did not start", tail(log, TAIL_LINES))
    return int(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
