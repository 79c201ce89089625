"""The pure modules reach no module that does I/O, and their tests do not read the clock."""

import ast
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import Any, Final

import pytest
from tests.architecture.source_tree import (
    ROOT,
    TESTS,
    Module,
    listing,
    modules_of_tests,
    source_modules,
)

LINTER: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]
PURE: Final = next(
    contract for contract in LINTER["contracts"] if contract["name"] == "pure modules do no I/O"
)
FORBIDDEN: Final = frozenset(PURE["forbidden_modules"]) | {"asyncio", "io", "pathlib", "secrets"}
FORBIDDEN_CALLS: Final = frozenset({"open", "print", "input", "exec", "eval"})
MODULES: Final = {module.name: module for module in source_modules()}
# The folders of the tests of pure rules, which set the clock.
TESTS_OF_RULES: Final = ("unit/domain", "property")
CLOCKS: Final = frozenset({"datetime.now", "datetime.utcnow", "time.time", "time.monotonic"})


def pure_modules() -> list[Module]:
    """Return the modules of the contract of the linter, with the modules below each package."""
    patterns = PURE["source_modules"]
    return [
        module
        for name, module in MODULES.items()
        if any(fnmatch(name, each) or fnmatch(name, f"{each}.*") for each in patterns)
    ]


def reachable(starts: Iterable[Module], known: Mapping[str, Module]) -> dict[str, Module]:
    """Return the modules that `starts` import, directly or through other known modules."""
    found: dict[str, Module] = {}
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        if module.name not in found:
            found[module.name] = module
            waiting += [known[name] for name in module.imported_modules() if name in known]
    return found


def faults_in(modules: Iterable[Module]) -> list[str]:
    """Return each import and each call of a module that is not pure."""
    imports = [
        f"{module}: {name}"
        for module in modules
        for name in module.imported_modules()
        if any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN)
    ]
    return imports + [
        f"{module}: {name}()"
        for module in modules
        for name in sorted(FORBIDDEN_CALLS & called_names(module))
    ]


def called_names(module: Module) -> set[str]:
    """Return the plain names that the module calls."""
    return {node.func.id for node in module.find(ast.Call) if isinstance(node.func, ast.Name)}


@pytest.mark.requirement("S125")
def test_pure_modules_reach_no_module_with_io() -> None:
    reached = reachable(pure_modules(), MODULES)

    faults = faults_in(reached.values())

    assert len(reached) > len(PURE["source_modules"])
    assert "harebell.domain.planner" in reached
    assert not faults, listing(faults)


@pytest.mark.requirement("S125")
@pytest.mark.parametrize(
    "source", ["import socket", "from os import path", "def now():\n    import time", "open('a')"]
)
def test_module_with_io_is_found_behind_a_pure_module(source: str) -> None:
    behind = Module(ROOT / "services" / "harebell" / "domain" / "behind.py", source)
    start = Module(
        ROOT / "services" / "harebell" / "domain" / "start.py", "import harebell.domain.behind"
    )

    reached = reachable([start], {behind.name: behind})

    assert len(faults_in(reached.values())) == 1


@pytest.mark.requirement("S125")
def test_tests_of_pure_rules_read_no_clock_and_need_no_server() -> None:
    tests = [
        module
        for module in modules_of_tests()
        if str(module.path.relative_to(TESTS)).startswith(TESTS_OF_RULES)
    ]

    faults = [
        f"{module}: {name}"
        for module in tests
        for name in sorted(module.dotted_names & (CLOCKS | {"pytest.mark.broker"}))
    ]

    assert len(tests) > 20
    assert not faults, listing(faults)
