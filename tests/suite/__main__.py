"""Run a suite, repeat each failed test once alone, and report: `python -m tests.suite test`."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.suite.lock import SuiteIsBusy, suite_lock
from tests.suite.report import FILE, PartReport, Report, current_commit, failures_in
from tests.suite.results import VARIABLE, Result, read_results
from tests.suite.suites import SUITES, Part

MAX_REPEATED: Final = 10  # tests; a suite with more failures fails without a repetition
PASSED, TESTS_FAILED = 0, 1  # exit statuses of pytest
GREEN, RED, BUSY = 0, 1, 75  # exit statuses of this command; 75 is EX_TEMPFAIL


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The runner of pytest, whose processes hold the lock of the suite."""

    folder: Path  # of the records
    lock: int

    def run(self, part: Part) -> PartReport:
        """Run a part with its command beside it, and return its report."""
        begin = time.monotonic()
        with self._beside(part.beside) as beside:
            status, results = self._pytest(part.name, part.arguments)
        return PartReport(
            name=part.name,
            seconds=time.monotonic() - begin,
            results=results,
            is_broken=not is_complete(status, results) or any(each.returncode for each in beside),
        )

    def repeat(self, tests: Sequence[str]) -> list[Result]:
        """Run failed tests once more, one after the other."""
        return self._pytest("repeated", ("-n0", *tests))[1]

    def _pytest(self, name: str, arguments: Sequence[str]) -> tuple[int, list[Result]]:
        file = self.folder / f"{name.replace(' ', '-')}.jsonl"
        command = [sys.executable, "-m", "pytest", "-p", "tests.suite.results", *arguments]
        environment = os.environ | {VARIABLE: str(file)}
        run = subprocess.run(command, env=environment, pass_fds=(self.lock,), check=False)  # noqa: S603  # pytest
        return run.returncode, read_results(file)

    @contextmanager
    def _beside(self, command: Sequence[str]) -> Iterator[list["subprocess.Popen[bytes]"]]:
        processes = [subprocess.Popen(command)] if command else []  # noqa: S603  # of a part
        try:
            yield processes
        finally:
            for process in processes:
                process.wait()


def is_complete(status: int, results: Sequence[Result]) -> bool:
    """Return whether the exit status of pytest and the recorded results agree.

    A process that dies can have the exit status of a failed test, and then no failure is recorded.
    """
    if status == PASSED:
        return bool(results) and not failures_in(results)
    return status == TESTS_FAILED and bool(failures_in(results))


def run_suite(
    name: str, parts: Sequence[Part], runner: Runner, *, earlier: Sequence[PartReport] = ()
) -> Report:
    """Run the parts of a suite, and then each failed test once more, alone.

    The report begins with the parts in `earlier`.
    """
    commit, reports = current_commit(), list(earlier)
    for part in parts:
        reports.append(runner.run(part))
        if part.is_gate and (reports[-1].is_broken or failures_in(reports[-1].results)):
            break
    first = Report(suite=name, commit=commit, parts=reports)
    again = [each.test for each in first.failed if each.can_repeat]
    if len(again) != len(first.failed) or not 0 < len(again) <= MAX_REPEATED:
        return first
    begin = time.monotonic()
    repeated = runner.repeat(again)
    reports.append(PartReport(name="repeated tests", seconds=time.monotonic() - begin))
    return Report(suite=name, commit=commit, parts=reports, repeated=repeated)


def show(report: Report) -> None:
    """Store the report, and print the unstable tests and the six lines."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(report.to_json() + "\n", encoding="utf-8")
    lines = [
        *(f"UNSTABLE {each.test}: first this.\n{each.failure}\n" for each in report.unstable),
        *(f"FAILED {each.test}" for each in report.failed),
        "",
        *report.lines(),
    ]
    print(*lines, sep="\n", flush=True)  # noqa: T201  # the output of the command


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES), help="Select the suite.")
    parser.add_argument(
        "--started", type=float, help="Count the set-up from this Unix time [s] (default: none)."
    )
    options = parser.parse_args()
    set_up = time.time() - options.started if options.started else 0.0
    try:
        with (
            suite_lock(f"make {options.suite}") as lock,
            tempfile.TemporaryDirectory(prefix="harebell-results-") as folder,
        ):
            report = run_suite(
                options.suite,
                SUITES[options.suite],
                Runner(folder=Path(folder), lock=lock),
                earlier=[PartReport(name="set-up", seconds=set_up)],
            )
            show(report)
    except SuiteIsBusy as error:
        print(error, file=sys.stderr)  # noqa: T201  # the output of the command
        return BUSY
    return GREEN if report.is_green else RED


if __name__ == "__main__":
    sys.exit(main())
