"""The runner of mutants: the tests without a mutant first, and then each mutant with its tests."""

import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final
from xml.etree import ElementTree as ET

from tests.mutants.mutant import Mutant, OutdatedMutant
from tests.mutants.workspace import COMPLETED, NOT_IMPORTED, TestRun, Workspace
from tests.rig.servers import private_servers, server_directory

MIN_TIMEOUT: Final = 120.0  # seconds of the tests of one mutant
TIMEOUT_FACTOR: Final = 10.0  # of the time of the same tests without the mutant
CHECK_TIMEOUT: Final = 3600.0  # seconds of all tests without a mutant

_PASSED, _FAILED = 0, 1  # exit statuses of pytest
# Such an error shows that the changed line is wrong, and not that a test knows the rule.
_INVALID: Final = re.compile(
    r"^(?:FAILED|ERROR) .* - (?:\w+\.)*(SyntaxError|IndentationError|NameError|ImportError"
    r"|ModuleNotFoundError|PostgresSyntaxError|Undefined\w+Error|Ambiguous\w+Error)\b",
    re.MULTILINE,
)
_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) .*", re.MULTILINE)


class Verdict(StrEnum):
    """The result of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"  # its tests did not end, so a person would notice the change
    SURVIVED = "survived"
    INVALID = "invalid"  # the changed line is no valid code
    OUTDATED = "outdated"  # the line does not occur exactly once, or a test does not exist
    UNTESTABLE = "untestable"  # a test of the mutant fails or is skipped without the mutant

    @property
    def is_good(self) -> bool:
        """Return whether the tests have noticed the mutant."""
        return self in (Verdict.KILLED, Verdict.TIMED_OUT)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The verdict about a mutant, with its reason and its duration in seconds."""

    mutant: Mutant
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0


class TestTimes:
    """The seconds of each test that passes without a mutant, by its path below `tests`."""

    __test__ = False  # pytest collects no class of this module

    def __init__(self, reports: Sequence[Path]) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._bad: dict[str, str] = {}
        for path in reports:
            for case in ET.parse(path).iter("testcase"):  # noqa: S314  # own report
                self._add(case)

    def seconds_of(self, test: str) -> float:
        """Return the time of a test, of all its parameters, or of all tests of a file."""
        return sum(time for name, time in self._seconds.items() if _is_part(name, test))

    def fault_of(self, test: str) -> str | None:
        """Return the reason why the test cannot notice a mutant, or None."""
        faults = [f"{name} {fault}" for name, fault in self._bad.items() if _is_part(name, test)]
        if faults:
            return faults[0]
        ran = any(_is_part(name, test) for name in self._seconds)
        return None if ran else f"{test} does not run"

    def _add(self, case: ET.Element) -> None:
        folders = (case.get("classname") or "").removeprefix("tests.").replace(".", "/")
        name = f"{folders}.py::{case.get('name')}"
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        if kinds - {"skipped"}:
            self._bad[name] = "fails without the mutant"
        elif not kinds:
            self._seconds[name] += float(case.get("time") or 0)


def _is_part(name: str, test: str) -> bool:
    """Return whether `test` contains the test `name`, which may have parameters."""
    return name == test or name.startswith((f"{test}[", f"{test}::"))


def run_mutants(
    mutants: Sequence[Mutant],
    source: Path,
    *,
    jobs: int = 1,
    min_timeout: float = MIN_TIMEOUT,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Return one result for each mutant, in the order of their ends.

    Each of the `jobs` has a workspace of its own.
    """
    results: list[Result] = []

    def add(result: Result) -> None:
        results.append(result)
        on_result(result)

    applicable = []
    for mutant in mutants:
        if (reason := fault_of(mutant, source)) is not None:
            add(Result(mutant=mutant, verdict=Verdict.OUTDATED, reason=reason))
        else:
            applicable.append(mutant)
    with _workspaces(source, jobs) as workspaces, ThreadPoolExecutor(jobs) as pool:
        times = check_tests(applicable, workspaces, pool)
        free: SimpleQueue[Workspace] = SimpleQueue()
        for workspace in workspaces:
            free.put(workspace)
        run = partial(_run_in_free, free=free, times=times, min_timeout=min_timeout)
        for result in pool.map(run, applicable):
            add(result)
    return results


def fault_of(mutant: Mutant, source: Path) -> str | None:
    """Return the reason why the mutant is outdated, or None."""
    try:
        mutant.check(source)
    except OutdatedMutant as error:
        return str(error)
    return None


def check_tests(
    mutants: Sequence[Mutant], workspaces: Sequence[Workspace], pool: ThreadPoolExecutor
) -> TestTimes:
    """Run each test of the mutants once without a mutant."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    files = sorted({test.partition("::")[0] for test in tests})
    parts = [
        [test for test in tests if test.partition("::")[0] in files[number :: len(workspaces)]]
        for number in range(len(workspaces))
    ]
    reports = list(pool.map(_check_part, workspaces, parts))
    return TestTimes([path for path in reports if path is not None])


def _check_part(workspace: Workspace, tests: Sequence[str]) -> Path | None:
    if not tests:
        return None
    report = workspace.root / "report.xml"
    done = workspace.run_tests(tests, timeout=CHECK_TIMEOUT, options=[f"--junitxml={report}"])
    if done.status not in COMPLETED or not report.exists():
        raise RuntimeError(f"The tests must run without a mutant:\n{done.output}")
    return report


def _run_in_free(
    mutant: Mutant, *, free: SimpleQueue[Workspace], times: TestTimes, min_timeout: float
) -> Result:
    faults = [fault for test in mutant.tests if (fault := times.fault_of(test)) is not None]
    if faults:
        return Result(mutant=mutant, verdict=Verdict.UNTESTABLE, reason=faults[0])
    seconds = sum(map(times.seconds_of, mutant.tests))
    began = time.monotonic()
    workspace = free.get()
    try:
        with workspace.mutated(mutant):
            done = workspace.run_tests(
                mutant.tests,
                timeout=min_timeout + TIMEOUT_FACTOR * seconds,
                module=mutant.module,
                options=["-x"],
                has_own_servers="storage/migrat" in mutant.file,  # shared ones have the old schema
            )
    finally:
        free.put(workspace)
    verdict, reason = judge(done)
    return Result(mutant=mutant, verdict=verdict, reason=reason, seconds=time.monotonic() - began)


def judge(done: TestRun) -> tuple[Verdict, str]:
    """Return the verdict about the tests of a mutant, with the failed test as the reason."""
    failure = _FAILURE.search(done.output)
    last = failure.group() if failure else done.output.strip().rpartition("\n")[2]
    match done.status:
        case None:
            return Verdict.TIMED_OUT, last
        case int() if done.status == _PASSED:
            return Verdict.SURVIVED, last
        case int() if done.status == _FAILED and not _INVALID.search(done.output):
            return Verdict.KILLED, last
        case int() if done.status == NOT_IMPORTED:
            return Verdict.INVALID, last
        case _:
            return Verdict.INVALID, last


@contextmanager
def _workspaces(source: Path, jobs: int) -> Iterator[list[Workspace]]:
    """Yield workspaces, and end the servers of their tests afterwards."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harebell-mutants-")))
        root.chmod(0o755)  # the user of PostgreSQL must reach the migrations
        workspaces = []
        for number in range(jobs):
            on_disk = root / f"servers-{number}"
            servers = stack.enter_context(server_directory(on_disk))
            stack.callback(_discard_servers, servers)
            workspaces.append(Workspace.copy(source, root / f"tree-{number}", servers=servers))
        yield workspaces


def _discard_servers(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        private_servers(folder).discard()


def counts(results: Sequence[Result]) -> Mapping[Verdict, int]:
    """Return the number of results of each verdict that occurs."""
    verdicts = [result.verdict for result in results]
    return {each: verdicts.count(each) for each in Verdict if each in verdicts}
