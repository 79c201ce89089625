"""The recorder of results, with a pytest of its own that runs a few tests."""

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.source_tree import ROOT
from tests.suite.results import VARIABLE, Outcome, Result, combined, read_results

TESTS = """\
import pytest
from tests.suite.results import LostOrDoubledRun

def test_passes(): pass
@pytest.mark.server
def test_fails(): assert "expected" == "found"
def test_fails_without_servers(): assert False
@pytest.mark.server
def test_finds_a_lost_run(): raise LostOrDoubledRun("run x is lost")
@pytest.mark.server
@pytest.mark.parametrize("number", [1, 2])
def test_is_skipped(number): pytest.skip("no")
@pytest.fixture
def broken(): raise OSError("no server")
@pytest.mark.server
def test_cannot_start(broken): pass
@pytest.mark.server
@pytest.mark.timeout(0.2)
def test_hangs():
    while True: pass
"""


def record(folder: Path, source: str, *arguments: str) -> tuple[int, dict[str, Result]]:
    (folder / "test_some.py").write_text(source)
    records = folder / "records.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite.results"]
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "--noconftest"]
    run = subprocess.run(  # noqa: S603  # pytest
        [*command, *configuration, *arguments, str(folder)],
        env=os.environ | {VARIABLE: str(records)},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    return run.returncode, {each.test.rpartition("::")[2]: each for each in read_results(records)}


def test_results_of_workers_have_outcomes_and_reasons(tmp_path: Path) -> None:
    status, results = record(tmp_path, TESTS, "-n1")

    outcomes = {test: (each.outcome, each.can_repeat) for test, each in results.items()}
    assert status == 1
    assert outcomes == {
        "test_passes": (Outcome.PASSED, False),
        "test_fails": (Outcome.FAILED, True),
        "test_fails_without_servers": (Outcome.FAILED, False),
        "test_finds_a_lost_run": (Outcome.FAILED, False),
        "test_is_skipped[1]": (Outcome.SKIPPED, True),
        "test_is_skipped[2]": (Outcome.SKIPPED, True),
        "test_cannot_start": (Outcome.FAILED, True),
        "test_hangs": (Outcome.FAILED, True),
    }
    assert "'expected' == 'found'" in results["test_fails"].failure
    assert "no server" in results["test_cannot_start"].failure
    assert "Timeout" in results["test_hangs"].failure


def test_module_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    status, results = record(tmp_path, "import no_such_module\n")

    assert status not in (0, 1)
    assert results["test_some.py"].outcome is Outcome.FAILED
    assert not results["test_some.py"].can_repeat


def test_worst_phase_decides_and_the_durations_are_added() -> None:
    phases = [
        {"test": "a", "outcome": "passed", "seconds": 1.0, "failure": "", "can_repeat": True},
        {"test": "a", "outcome": "skipped", "seconds": 2.0, "failure": "", "can_repeat": True},
        {"test": "a", "outcome": "failed", "seconds": 3.0, "failure": "why", "can_repeat": True},
    ]

    assert list(combined(phases)) == [
        Result(test="a", outcome=Outcome.FAILED, seconds=6.0, failure="why", can_repeat=True)
    ]
