"""The tests that a change affects, in a graph of imports and in this project."""

import subprocess
from pathlib import Path

import grimp
import pytest
from tests.suite.affected import affected_tests, changed_files, import_graph, module_of

IMPORTS = {
    "tests.unit.test_retry": ("harebell.domain.retry",),
    "tests.unit.test_indirect": ("harebell.executor.outcome",),
    "harebell.executor.outcome": ("harebell.domain.retry",),
    "tests.unit.test_other": ("harebell.domain.cron",),
    "tests.integration.conftest": ("tests.rig.servers",),
    "tests.integration.intake.test_commands": ("harebell.domain.cron",),
}


@pytest.fixture
def graph() -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for importer, imported in IMPORTS.items():
        for each in imported:
            graph.add_import(importer=importer, imported=each)
    return graph


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            "services/harebell/domain/retry.py",
            ("tests/unit/test_indirect.py", "tests/unit/test_retry.py"),
        ),
        ("tests/unit/test_other.py", ("tests/unit/test_other.py",)),
        ("tests/rig/servers.py", ("tests/integration/intake/test_commands.py",)),
        ("tests/integration/conftest.py", ("tests/integration/intake/test_commands.py",)),
    ],
    ids=["imported", "itself", "imported by conftest", "conftest"],
)
def test_change_affects_the_tests_that_import_it(
    graph: grimp.ImportGraph, changed: str, expected: tuple[str, ...]
) -> None:
    affected = affected_tests({changed}, graph)

    assert affected.tests == expected
    assert affected.without_imports == ()


def test_file_without_imports_is_named(graph: grimp.ImportGraph) -> None:
    changed = {"docs/README.md", "services/harebell/domain/removed.py"}

    affected = affected_tests(changed, graph)

    assert affected.tests == ()
    assert affected.without_imports == tuple(sorted(changed))


def test_files_of_packages_are_modules() -> None:
    assert module_of("tests/tools/schemas/__init__.py") == "tests.tools.schemas"
    assert module_of("schemas/harebell/contract/ids.py") == "harebell.contract.ids"


def test_rule_of_this_project_affects_its_tests_and_no_foreign_one() -> None:
    affected = affected_tests({"services/harebell/domain/retry.py"}, import_graph())

    assert "tests/unit/domain/test_retry.py" in affected.tests
    assert "tests/unit/suite/test_lock.py" not in affected.tests


def test_changed_files_are_those_of_the_branch_and_of_the_working_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(("git", *identity, *arguments), check=True, capture_output=True)  # noqa: S603, S607  # git

    def commit(name: str) -> None:
        Path(name).touch()
        git("add", name)
        git("commit", "-m", name)

    git("init", "-b", "main")
    commit("base.py")
    git("checkout", "-b", "topic")
    commit("of_the_branch.py")
    git("checkout", "main")
    commit("of_the_base.py")
    git("checkout", "topic")
    Path("base.py").write_text("changed")
    Path("new.py").touch()

    assert set(changed_files()) == {"base.py", "new.py", "of_the_branch.py"}
    assert set(changed_files("HEAD")) == {"base.py", "new.py"}
