"""Workspaces: copies of the tree, in each of which one mutant at a time is applied."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from tests.mutants.mutant import IMPORT_ROOTS, Mutant
from tests.rig.servers import SHARED_SERVERS

NOT_COPIED: Final = (
    ".git",
    ".venv",
    ".harebell",
    ".hypothesis",
    ".*_cache",
    "__pycache__",
    "*.egg-info",
)
STOP_GRACE: Final = 30.0  # seconds in which an interrupted test run stops its servers

# The statuses of pytest after which each selected test has a result: all passed, or some failed.
COMPLETED: Final = (0, 1)
NOT_IMPORTED: Final = 90  # the exit status of a mutant that does not import
# The mutated module must come from the workspace, although the environment contains the original.
_DRIVER: Final = f"""
import importlib, os, signal, sys, traceback
import pytest
# A background job of a shell ignores SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    for name in sys.argv[1].split():
        module = importlib.import_module(name)
        assert module.__file__.startswith(os.getcwd() + os.sep), module.__file__
except BaseException:
    traceback.print_exc()
    sys.exit({NOT_IMPORTED})
sys.exit(pytest.main(sys.argv[2:]))
"""
_OPTIONS: Final = ("-q", "-p", "no:cacheprovider", "--tb=short", "-rfE")


@dataclass(frozen=True)
class TestRun:
    """The end of a test run. `status` is the exit status of pytest, or None after a timeout."""

    __test__ = False  # pytest collects no class of this module

    status: int | None
    output: str


@dataclass(frozen=True)
class Workspace:
    """A copy of the tree at `root`, whose tests share the servers of the folder `servers`."""

    root: Path
    servers: Path

    @classmethod
    def copy(cls, source: Path, root: Path, *, servers: Path) -> "Workspace":
        """Copy the tree, without caches, history and environments."""
        shutil.copytree(source, root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        return cls(root, servers)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Apply the mutant, and restore its file afterwards."""
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        try:
            _write(path, mutant.apply_to(original))
            yield
        finally:
            _write(path, original)

    def run_tests(
        self,
        tests: Sequence[str],
        *,
        timeout: float,
        module: str | None = None,
        options: Sequence[str] = (),
        has_own_servers: bool = False,
    ) -> TestRun:
        """Import the module, run the tests and return their result.

        `timeout` is in seconds. A test run that exceeds it stops its servers and ends.
        """
        paths = [f"tests/{test}" for test in tests]
        output = self.root / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603  # a fixed command
                [sys.executable, "-c", _DRIVER, module or "", *_OPTIONS, *options, *paths],
                cwd=self.root,
                env=self._environment(has_own_servers=has_own_servers),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status = _wait(process, timeout)
        return TestRun(status, output.read_text(encoding="utf-8", errors="replace"))

    def _environment(self, *, has_own_servers: bool) -> Mapping[str, str]:
        roots = os.pathsep.join(str(self.root / name) for name in (*IMPORT_ROOTS, "."))
        shared = {} if has_own_servers else {SHARED_SERVERS: str(self.servers)}
        return {**os.environ, "PYTHONPATH": roots, "COLUMNS": "200", **shared}


def _write(path: Path, text: str) -> None:
    """Write the file without its compiled form, which a change within a second can keep valid."""
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(path)).unlink(missing_ok=True)


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Wait for the end of the process. After the timeout, interrupt it and then kill it."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None
