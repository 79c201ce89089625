"""Imports follow the layers, form no cycle, and give each rule one home."""

import ast
import re
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import pytest
from tests.architecture.source_tree import (
    ROOT,
    SCHEMAS,
    SERVICES,
    Module,
    listing,
    source_modules,
)

LINTER: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]
CONTRACTS: Final = {contract["name"]: contract for contract in LINTER["contracts"]}
PURE: Final = "pure modules do no I/O"
NAMES: Final = frozenset(module.name for module in source_modules())
PRODUCTION: Final = tuple(
    module for module in source_modules() if not module.name.startswith("harebell.dev")
)

# The functions that read the clock or a random number, and the modules that may call them.
READERS: Final = {
    "datetime.now": {"harebell.runtime.clock", "harebell.cli.__main__"},
    "datetime.utcnow": set[str](),
    "datetime.today": set[str](),
    "date.today": set[str](),
    "time.time": set[str](),
    "time.time_ns": set[str](),
    "os.getenv": set[str](),
    "uuid.uuid4": set[str](),
    "random.random": {
        "harebell.executor.receiver",
        "harebell.executor.completer",
        "harebell.ticker.reports",
    },
}
# The time in a request is for people and decides nothing.
INFORMATIVE: Final = frozenset({"harebell.client.rpc"})


def packages() -> set[str]:
    """Return the names of the packages below the namespace."""
    return {
        f"harebell.{path.parent.name}"
        for root in (SERVICES, SCHEMAS)
        for path in (root / "harebell").glob("*/__init__.py")
    }


def layers() -> Iterator[str]:
    """Yield the packages of the layers contract."""
    for layer in CONTRACTS["layers"]["layers"]:
        assert ":" not in layer, "A colon permits imports between siblings."
        yield from layer.split(" | ")


def top_level_imports(tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """Yield the known modules that an import statement outside functions names."""
    statements = list[ast.stmt](tree.body)
    while statements:
        node = statements.pop()
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name in known)
            case ast.ImportFrom(module=str(module)):
                inner = {f"{module}.{alias.name}" for alias in node.names}
                yield from inner & known
                if module in known and not inner <= known:
                    yield module
            case ast.If() | ast.Try() | ast.With():
                statements += [each for each in ast.walk(node) if isinstance(each, _IMPORTS)]
            case _:
                pass


_IMPORTS: Final = (ast.Import, ast.ImportFrom)


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import cycle, or an empty list."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_modules_import_each_other_without_a_cycle() -> None:
    imports = {
        module.name: set(top_level_imports(module.tree, NAMES)) for module in source_modules()
    }

    assert sum(map(len, imports.values())) > len(imports)
    assert cycle_in(imports) == []


def test_cycle_is_found() -> None:
    known = frozenset({"a", "a.b", "c"})
    sources = {"a.b": "import c", "c": "from a import b", "a": "from c import x"}
    imports = {
        name: set(top_level_imports(ast.parse(source), known)) for name, source in sources.items()
    }

    assert imports == {"a.b": {"c"}, "c": {"a.b"}, "a": {"c"}}
    assert set(cycle_in(imports)) == {"a.b", "c"}


def test_import_in_a_function_is_no_edge_of_the_graph() -> None:
    tree = ast.parse("def run():\n  import c\nif TYPE_CHECKING:\n  import a")

    assert list(top_level_imports(tree, frozenset({"a", "c"}))) == ["a"]


@pytest.mark.requirement("S58")
def test_linter_checks_every_package_and_gives_each_a_layer() -> None:
    assert set(LINTER["root_packages"]) == packages()
    assert sorted(layers()) == sorted(packages())


def test_make_check_runs_the_import_linter() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]

    assert "lint-imports" in recipe


@pytest.mark.requirement("S125")
def test_pure_module_of_the_linter_exists() -> None:
    pure = {name for name in CONTRACTS[PURE]["source_modules"] if "*" not in name}

    assert pure <= NAMES
    assert "harebell.*.model" in CONTRACTS[PURE]["source_modules"]


def test_one_module_imports_croniter() -> None:
    users = [module.name for module in source_modules() if "croniter" in module.imported_modules()]

    assert users == ["harebell.domain.cron.matcher"]


def test_only_main_modules_read_the_environment() -> None:
    readers = {module.name for module in PRODUCTION if "os.environ" in module.dotted_names}

    assert {name for name in readers if not name.endswith(".__main__")} == set()


@pytest.mark.parametrize(("reader", "homes"), READERS.items())
def test_clock_and_random_numbers_are_read_only_in_their_homes(
    reader: str, homes: set[str]
) -> None:
    users = {module.name for module in PRODUCTION if reader in module.dotted_names}

    assert users - INFORMATIVE <= homes


def test_one_module_acknowledges_messages() -> None:
    users = {module.name for module in source_modules() if _acknowledges(module)}

    # The worker library runs in programs of tenants, which have no module of the services.
    assert users <= {"harebell.messaging.acknowledge", "harebell.client.worker"}


def _acknowledges(module: Module) -> bool:
    calls = re.compile(r"(?:.+\.)?(?:ack|nack|message\.reject)")
    return any(calls.fullmatch(name) for name in module.dotted_names)


@pytest.mark.requirement("S127")
def test_no_module_of_a_package_imports_the_tests() -> None:
    faults = [
        f"{module}: {name}"
        for module in source_modules()
        for name in module.imported_modules()
        if name.split(".")[0] == "tests"
    ]

    assert not faults, listing(faults)
