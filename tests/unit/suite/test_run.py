"""A suite with a pytest of its own: tests that it repeats, and parts that it does not run."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.architecture.source_tree import ROOT
from tests.suite.__main__ import Runner, run_suite
from tests.suite.clock import MOMENTS
from tests.suite.report import Report
from tests.suite.suites import Part

SETTINGS = """\
[pytest]
markers =
    server: needs a server
"""
HEAD = """\
import os
import time
from pathlib import Path
import pytest
from tests.suite.results import LostOrDoubledRun

def is_second_run(name):
    done = Path(name).exists()
    Path(name).touch()
    return done
"""
FLAKY = """
@pytest.mark.server
def test_is_disturbed_once(): assert is_second_run("disturbed")
"""
BROKEN = """
@pytest.mark.server
def test_always_fails(): assert is_second_run("broken") is None
"""
FINDING = """
@pytest.mark.server
def test_finds_a_lost_run():
    if not is_second_run("lost"): raise LostOrDoubledRun("run x is lost")
"""
WITHOUT_SERVERS = """
def test_rule(): assert is_second_run("rule")
"""
AT_A_MOMENT = """
@pytest.mark.server
def test_sees_the_moment(): assert is_second_run("moment") and time.gmtime()[:3] == (2028, 2, 29)
"""
CRASH = """
def test_ends_its_process(): os._exit(1)
"""
PASSES = """
def test_passes(): pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of a project without tests."""
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def run(folder: Path, sources: Mapping[str, str], *parts: Part) -> Report:
    for name, source in sources.items():
        (folder / f"test_{name}.py").write_text(HEAD + source)
    (folder / "records").mkdir()
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        return run_suite("test", parts, Runner(folder=folder / "records", lock=lock))
    finally:
        os.close(lock)


def part(name: str, *more: str, is_gate: bool = False) -> Part:
    return Part(name=name, arguments=("-n0", *more, f"test_{name}.py"), is_gate=is_gate)


def test_failed_test_of_servers_is_repeated_and_then_unstable(folder: Path) -> None:
    report = run(folder, {"flaky": FLAKY + PASSES}, part("flaky"))

    assert report.is_green
    assert [each.test for each in report.unstable] == ["test_flaky.py::test_is_disturbed_once"]
    assert "is_second_run" in report.unstable[0].failure
    assert [each.name for each in report.parts] == ["flaky", "repeated tests"]


def test_part_that_may_be_empty_needs_no_test(folder: Path) -> None:
    empty = part("passes", "-k", "nothing")

    report = run(folder, {"passes": PASSES}, replace(empty, may_be_empty=True))

    assert report.is_green


@pytest.mark.unshifted
def test_test_is_repeated_with_the_clock_of_its_part(folder: Path) -> None:
    moment = next(each for each in MOMENTS if each.name == "29 February")

    report = run(folder, {"moment": AT_A_MOMENT}, replace(part("moment"), clock=moment))

    assert report.is_green
    assert len(report.unstable) == 1


def test_suite_fails_when_a_repeated_test_fails_again(folder: Path) -> None:
    report = run(folder, {"both": FLAKY + BROKEN}, part("both"))

    assert not report.is_green
    assert [each.test for each in report.failed] == ["test_both.py::test_always_fails"]
    assert len(report.unstable) == 1


@pytest.mark.parametrize(
    ("source", "file"), [(FINDING, "lost"), (WITHOUT_SERVERS, "rule")], ids=["finding", "rule"]
)
def test_finding_and_rule_are_never_repeated(folder: Path, source: str, file: str) -> None:
    report = run(folder, {"one": source}, part("one"))

    assert not report.is_green
    assert report.unstable == []
    assert (folder / file).exists()  # the test would pass now
    assert [each.name for each in report.parts] == ["one"]


def test_failure_of_a_gate_ends_the_suite(folder: Path) -> None:
    report = run(
        folder,
        {"rule": WITHOUT_SERVERS, "later": PASSES},
        part("rule", is_gate=True),
        part("later"),
    )

    assert not report.is_green
    assert [each.name for each in report.parts] == ["rule"]


@pytest.mark.parametrize(
    "broken",
    [
        Part(name="no tests", arguments=("-n0", "-k", "nothing", "test_passes.py")),
        Part(name="no file", arguments=("-n0", "test_missing.py")),
        Part(name="crash", arguments=("-n0", "test_crash.py")),
        Part(name="crashed worker", arguments=("-n1", "--max-worker-restart=0", "test_crash.py")),
        Part(name="beside", arguments=("-n0", "test_passes.py"), beside=("false",)),
    ],
    ids=lambda each: each.name,
)
def test_suite_fails_when_a_part_does_not_complete(folder: Path, broken: Part) -> None:
    report = run(folder, {"crash": CRASH, "passes": PASSES}, broken)

    assert not report.is_green
