"""The runner reports a mutant that no test notices, and every mutant that shows nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.mutants.mutant import Mutant
from tests.mutants.runner import Verdict, judge, run_mutants
from tests.mutants.workspace import NOT_IMPORTED, TestRun

RULES = """\
LIMIT = 3

def is_allowed(count):
    return count < LIMIT

def wait():
    while LIMIT < 0:
        pass
"""
TESTS = """\
import pytest
from rules import is_allowed, wait

def test_limit_is_exclusive():
    assert not is_allowed(3)

def test_small_count_is_allowed():
    assert is_allowed(1)

def test_wait_ends():
    wait()

def test_that_always_fails():
    assert is_allowed(9)

@pytest.mark.skip
def test_that_never_runs():
    assert not is_allowed(3)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree with the folders of the repository."""
    files = {"services/rules.py": RULES, "tests/test_rules.py": TESTS}
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "tree"


def mutant(name: str, find: str, replace: str, test: str) -> Mutant:
    return Mutant(
        name=name,
        topic="limits",
        file="services/rules.py",
        find=find,
        replace=replace,
        tests=(f"test_rules.py::{test}",),
    )


def test_runner_has_a_verdict_for_each_mutant(tree: Path) -> None:
    inclusive = ("count < LIMIT", "count <= LIMIT")
    mutants = [
        mutant("found", *inclusive, "test_limit_is_exclusive"),
        mutant("missed", *inclusive, "test_small_count_is_allowed"),
        mutant("moved", "count < MAXIMUM", "count <= MAXIMUM", "test_limit_is_exclusive"),
        mutant("broken", "LIMIT = 3", "LIMIT = 1 / 0", "test_limit_is_exclusive"),
        mutant("misspelt", "return count <", "return counts <", "test_limit_is_exclusive"),
        mutant("failing", *inclusive, "test_that_always_fails"),
        mutant("skipped", *inclusive, "test_that_never_runs"),
        mutant("unknown", *inclusive, "test_that_does_not_exist"),
    ]

    results = run_mutants(mutants, tree, jobs=2)

    assert {each.mutant.name: each.verdict for each in results} == {
        "found": Verdict.KILLED,
        "missed": Verdict.SURVIVED,
        "moved": Verdict.OUTDATED,
        "broken": Verdict.INVALID,
        "misspelt": Verdict.INVALID,
        "failing": Verdict.UNTESTABLE,
        "skipped": Verdict.UNTESTABLE,
        "unknown": Verdict.OUTDATED,
    }
    assert (tree / "services" / "rules.py").read_text() == RULES


def test_mutant_whose_tests_do_not_end_is_noticed_after_a_timeout(tree: Path) -> None:
    endless = mutant("endless", "LIMIT < 0", "LIMIT > 0", "test_wait_ends")

    (result,) = run_mutants([endless], tree, min_timeout=2)

    assert result.verdict is Verdict.TIMED_OUT
    assert result.verdict.is_good


def test_file_that_pytest_cannot_collect_ends_the_run(tree: Path) -> None:
    (tree / "tests" / "test_broken.py").write_text("raise OSError('no such file')\n")
    inclusive = mutant("found", "count < LIMIT", "count <= LIMIT", "test_limit_is_exclusive")
    broken = replace(inclusive, tests=(*inclusive.tests, "test_broken.py"))

    with pytest.raises(RuntimeError, match="no such file"):
        run_mutants([broken], tree)


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, "1 passed", Verdict.SURVIVED),
        (1, "FAILED tests/test_a.py::test_b - assert 3 == 4", Verdict.KILLED),
        (1, "ERROR tests/test_a.py::test_b - TimeoutError", Verdict.KILLED),
        (1, "FAILED tests/test_a.py::test_b - NameError: name 'x'", Verdict.INVALID),
        (1, "FAILED a.py::b - asyncpg.exceptions.PostgresSyntaxError: syntax", Verdict.INVALID),
        (2, "Interrupted: 1 error during collection", Verdict.INVALID),
        (5, "no tests ran", Verdict.INVALID),
        (NOT_IMPORTED, "SyntaxError: invalid syntax", Verdict.INVALID),
        (None, "", Verdict.TIMED_OUT),
    ],
)
def test_verdict_follows_from_the_end_of_the_tests(
    status: int | None, output: str, verdict: Verdict
) -> None:
    assert judge(TestRun(status, output))[0] is verdict
