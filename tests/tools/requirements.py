"""The generator of the page `tests/requirements.md`, which shows the tests of each requirement.

Run `python -m tests.tools.requirements` after a change of a marker or of `requirements.toml`.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.architecture.source_tree import TESTS, Module, modules_of_tests

DATA: Final = Path(__file__).with_suffix(".toml")
PAGE: Final = TESTS / "requirements.md"
MARKER: Final = "pytest.mark.requirement"
MARKS: Final = "pytestmark"  # the name of the markers of a whole module
# The markers of tests that `make test` omits. A test with several runs only in the first suite.
SUITES: Final = ("chaos", "deploy", "long")

INTRODUCTION: Final = """\
# Requirements and their tests

`python -m tests.tools.requirements` writes this page, and a test fails if it is stale.
Each test has the marker `@pytest.mark.requirement` with the ids of its requirements.
Here you see the modules of these tests, relative to `tests`.

| mark after a module | its tests of this requirement run with |
|---|---|
| no mark | `make test`, at least some of them |
| **long** | only `make test-all` |
| **chaos** | only `make chaos` |
| **deploy** | only `make deploy` |
"""
HEAD: Final = """\
| id | requirement | tests |
|---|---|---|
"""
MISSING_HEAD: Final = """\
| id | requirement | missing part |
|---|---|---|
"""
SECTIONS: Final = {"S": "Features", "ASK-": "User requests", "P": "Promises of the security page"}
MISSING: Final = "Missing parts"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One requirement. `missing` is the part that no test shows.

    `long` is the reason why no test of `make test` shows the requirement.
    """

    id: str
    asked: str
    note: str = ""
    benchmarks: tuple[str, ...] = ()
    missing: str = ""
    long: str = ""


@cache
def requirements() -> tuple[Requirement, ...]:
    """Return the requirements in the order of the data file."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return tuple(
        Requirement(id=id_, **{**values, "benchmarks": tuple(values.get("benchmarks", ()))})
        for id_, values in data.items()
    )


@cache
def marked_tests() -> Mapping[str, tuple[str, ...]]:
    """Return the tests by the ids of their markers, each as `path::name`."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules_of_tests():
        for name, ids in markers(module):
            for id_ in ids:
                found[id_].append(f"{module.path.relative_to(TESTS)}::{name}")
    return {id_: tuple(sorted(names)) for id_, names in found.items()}


def markers(module: Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each marked test with the ids of its marker, or of that of its module."""
    of_module = [
        id_
        for node in module.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == MARKS
        for id_ in _ids(ast.walk(node.value))
    ]
    for function in module.functions():
        if of_module and function.name.startswith("test_"):
            yield function.name, of_module
        if ids := _ids(function.decorator_list):
            yield function.name, ids


def _ids(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the ids of the markers among the nodes."""
    return [
        ast.literal_eval(each)
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARKER
        for each in node.args
    ]


@cache
def suite_marks() -> Mapping[str, str]:
    """Return the mark of each marked test that `make test` omits or runs in part."""
    return {
        f"{module.path.relative_to(TESTS)}::{name}": mark
        for module in modules_of_tests()
        for name, mark in marks_of_tests(module)
    }


def marks_of_tests(module: Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the mark of each test with a marker of `SUITES`."""
    constants = {
        ast.unparse(target): ast.unparse(node.value)
        for node in module.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    of_module = constants.get(MARKS, "")
    for function in module.functions():
        decorators = [ast.unparse(each) for each in function.decorator_list]
        parameters = [
            text + "".join(constants.get(ast.unparse(each), "") for each in node.args)
            for node, text in zip(function.decorator_list, decorators, strict=True)
            if isinstance(node, ast.Call)
        ]
        for suite in SUITES:
            marker = f"pytest.mark.{suite}"
            if marker in decorators or re.search(rf"{re.escape(marker)}\b", of_module):
                yield function.name, f"**{suite}**"
                break
            if any(marker in text for text in parameters):
                yield function.name, f"*partly {suite}*"
                break


def render(found: Mapping[str, tuple[str, ...]]) -> str:
    """Return the page for these tests."""
    parts = [INTRODUCTION]
    for prefix, title in SECTIONS.items():
        rows = [_row(each, found) for each in requirements() if each.id.startswith(prefix)]
        parts.append(f"## {title}\n\n{HEAD}{''.join(filter(None, rows))}")
    missing = [f"| {each.id} | {each.asked} | {each.missing} |\n" for each in _incomplete()]
    parts.append(f"## {MISSING}\n\n{MISSING_HEAD}{''.join(missing)}")
    return "\n".join(parts)


def _row(requirement: Requirement, found: Mapping[str, tuple[str, ...]]) -> str:
    modules: dict[str, set[str]] = defaultdict(set)
    for name in found.get(requirement.id, ()):
        modules[name.partition("::")[0]].add(suite_marks().get(name, ""))
    cells = [f"`{module}` {common_mark(marks)}".strip() for module, marks in modules.items()]
    cells += [f"`{name}`" for name in requirement.benchmarks]
    names = len(cells)
    cells += [each for each in (requirement.long, requirement.note) if each]
    return f"| {requirement.id} | {requirement.asked} | {'<br>'.join(cells)} |\n" if names else ""


def common_mark(marks: set[str]) -> str:
    """Return the mark of all tests, unless `make test` runs one of them."""
    (mark, *others) = marks
    return mark if mark.startswith("**") and not others else ""


def quick_tests(id_: str) -> list[str]:
    """Return the tests of a requirement that `make test` runs, at least with some parameters."""
    tests = marked_tests().get(id_, ())
    return [each for each in tests if not suite_marks().get(each, "").startswith("**")]


def _incomplete() -> list[Requirement]:
    return [each for each in requirements() if each.missing]


if __name__ == "__main__":
    PAGE.write_text(render(marked_tests()), encoding="utf-8")
