"""Run a suite, repeat each failed test once alone, and report: `python -m tests.suite test`.

`TEST_SECONDS=1` stores the durations of the tests, which determine their order.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.rig import file_order
from tests.rig.servers import shared_broker
from tests.suite.affected import affected_tests, changed_files, import_graph
from tests.suite.lock import SuiteIsBusy, suite_lock
from tests.suite.report import PartReport, Report, current_commit, failures_in
from tests.suite.results import VARIABLE, Result, read_results
from tests.suite.suites import AFFECTED, ALONE, SUITES, Part, affected_part

MAX_REPEATED: Final = 10  # tests; a suite with more failures fails without a repetition
PASSED, TESTS_FAILED, NO_TESTS = 0, 1, 5  # exit statuses of pytest
GREEN, RED, BUSY = 0, 1, 75  # exit statuses of this command; 75 is EX_TEMPFAIL


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The runner of pytest, whose processes hold the lock of the suite."""

    folder: Path  # of the records
    lock: int
    shared: Mapping[str, str] = field(default_factory=dict)  # the environment of a shared broker

    def run(self, part: Part) -> PartReport:
        """Run a part with its command beside it, and return its report."""
        begin = time.monotonic()
        with self._beside(part.beside) as beside:
            status, results = self._pytest(part)
        return PartReport(
            name=part.name,
            seconds=time.monotonic() - begin,
            results=results,
            is_broken=not (
                is_complete(status, results) or (part.may_be_empty and status == NO_TESTS)
            )
            or any(each.returncode for each in beside),
        )

    def repeat_failed(self, part: Part, report: PartReport) -> PartReport:
        """Run the failed tests of a part once more, one after the other, with its clock."""
        if not report.failed:
            return report
        tests = (each.test for each in report.failed)
        again = replace(part, name=f"{part.name} repeated", arguments=(ALONE, *tests))
        return replace(report, repeated=self._pytest(again)[1])

    def _pytest(self, part: Part) -> tuple[int, list[Result]]:
        file = self.folder / f"{part.name.replace(' ', '-')}.jsonl"
        command = [sys.executable, "-m", "pytest", "-p", "tests.suite.results", *part.arguments]
        environment = os.environ | part.environment | {VARIABLE: str(file)}
        if part.shares_broker:
            environment |= self.shared
        if part.clock:
            command = [*part.clock.command(datetime.now(UTC)), *command]
            environment |= part.clock.environment()
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
    commit, ran = current_commit(), list[tuple[Part, PartReport]]()
    for part in parts:
        report = runner.run(part)
        ran.append((part, report))
        if part.is_gate and (report.is_broken or report.failed):
            break
    begin, repetition = time.monotonic(), list[PartReport]()
    failed = [each for _, report in ran for each in report.failed]
    if 0 < len(failed) <= MAX_REPEATED and all(each.can_repeat for each in failed):
        ran = [(part, runner.repeat_failed(part, report)) for part, report in ran]
        repetition.append(PartReport(name="repeated tests", seconds=time.monotonic() - begin))
    reports = [*earlier, *(report for _, report in ran), *repetition]
    return Report(suite=name, commit=commit, parts=reports)


def show(report: Report) -> None:
    """Store the report, and print the unstable tests and the six lines."""
    report.file.parent.mkdir(exist_ok=True)
    report.file.write_text(report.to_json() + "\n", encoding="utf-8")
    lines = [
        *(f"UNSTABLE {each.test}: first this.\n{each.failure}\n" for each in report.unstable),
        *(f"FAILED {each.test}" for each in report.failed),
        "",
        *report.lines(),
    ]
    print(*lines, sep="\n", flush=True)  # noqa: T201  # the output of the command


def affected_parts(base: str | None) -> Sequence[Part]:
    """Return the part with the affected tests, or no part, and print the files without imports."""
    affected = affected_tests(set(changed_files(base)), import_graph())
    if affected.without_imports:
        names = ", ".join(affected.without_imports)
        print(f"No import leads to these changed files, so `make test` covers them: {names}")  # noqa: T201  # the output
    if not affected.tests:
        print("No test imports a changed module.")  # noqa: T201  # the output of the command
        return ()
    return (affected_part(affected.tests),)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("suite", choices=sorted((*SUITES, AFFECTED)), help="Select the suite.")
    parser.add_argument(
        "--started", type=float, help="Count the set-up from this Unix time [s] (default: none)."
    )
    parser.add_argument(
        "--base", help="Compare with this commit (default: the main branch). Only for `affected`."
    )
    options = parser.parse_args()
    parts = affected_parts(options.base) if options.suite == AFFECTED else SUITES[options.suite]
    if not parts:
        return GREEN
    set_up = time.time() - options.started if options.started else 0.0
    try:
        with (
            suite_lock(f"make {options.suite}") as lock,
            tempfile.TemporaryDirectory(prefix="harebell-results-") as folder,
            shared_broker() as shared,
        ):
            report = run_suite(
                options.suite,
                parts,
                Runner(folder=Path(folder), lock=lock, shared=shared),
                earlier=[PartReport(name="set-up", seconds=set_up)],
            )
            show(report)
            if report.is_green and os.environ.get(file_order.RECORD):
                file_order.store({each.test: each.seconds for each in report.results})
    except SuiteIsBusy as error:
        print(error, file=sys.stderr)  # noqa: T201  # the output of the command
        return BUSY
    return GREEN if report.is_green else RED


if __name__ == "__main__":
    sys.exit(main())
