"""The code has the shape of the style guide: signatures, classes, names and directives.

Each rule for a module is a function from the module to its faults, with a bad and a good example.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from tests.architecture.source_tree import (
    SERVICES,
    Module,
    all_modules,
    listing,
    modules_of_tests,
    source_modules,
)

MAX_POSITIONAL_FIELDS: Final = 3
FORBIDDEN_NAMES: Final = frozenset(
    {"common", "helpers", "manager", "misc", "models", "util", "utils"}
)
# The names in -ing that are terms of the glossary or the names of activities.
RESERVED_NAMES: Final = frozenset({"claiming", "messaging", "planning", "running", "staging"})
WIRING_FILES: Final = frozenset({"receiver.py", "service.py"})
REQUIREMENT_ID: Final = re.compile(r"(?:^|_)(?:s\d{2,3}|ask_?\d{1,2})(?:_|$)", re.IGNORECASE)
DECISION: Final = re.compile(r"\bdecisions?(?: record)?s? \d+", re.IGNORECASE)
# A directive that names its codes, and one that does not.
DIRECTIVE: Final = re.compile(
    r"#\s*(?:noqa:\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*|type:\s*ignore\[[\w, -]+\])"
)
BARE: Final = re.compile(r"#\s*(?:ruff:|noqa(?!:)|type:\s*ignore(?!\[))")
FORMATTER: Final = re.compile(r"#\s*(?:fmt:|yapf:)")

Rule = Callable[[Module], list[str]]


def literal_splats(module: Module) -> list[str]:
    """Return the calls and collections that unpack a literal tuple or list."""
    return [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for node in module.find(ast.Starred)
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Tuple | ast.List)
    ]


def positional_fields(module: Module) -> list[str]:
    """Return the dataclasses that are not `kw_only`, and the tuples that name no decision."""
    return [
        f"{module}:{each.lineno}: {each.name}"
        for each in module.find(ast.ClassDef)
        if _field_count(each) > MAX_POSITIONAL_FIELDS
        and (_is_positional_dataclass(each) or _is_unexplained_tuple(each))
    ]


def _field_count(node: ast.ClassDef) -> int:
    return sum(
        isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)
        for each in node.body
    )


def _is_positional_dataclass(node: ast.ClassDef) -> bool:
    if any("KW_ONLY" in ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)):
        return False
    return any(
        re.match(r"(?:dataclasses\.)?dataclass\b", text) and "kw_only=True" not in text
        for text in map(ast.unparse, node.decorator_list)
    )


def _is_unexplained_tuple(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return "NamedTuple" in bases and not DECISION.search(ast.get_docstring(node) or "")


def late_wiring(module: Module) -> list[str]:
    """Return the statements that assign an attribute of an object other than `self`."""
    if module.path.name not in WIRING_FILES:
        return []
    return [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for node in module.find(ast.Attribute)
        if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self"
    ]


def private_imports(module: Module) -> list[str]:
    """Return the imports of names with a leading underscore."""
    return [
        f"{module}:{node.lineno}: {alias.name} of {node.module}"
        for node in module.find(ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


def unexplained_directives(module: Module) -> list[str]:
    """Return the comments that disable the formatter, or a linter without a reason."""
    faults = []
    for token in module.comments:
        text = token.string
        reason, count = DIRECTIVE.subn("", text)
        is_unexplained = count and not re.search("[A-Za-z]", reason)
        if FORMATTER.search(text) or BARE.search(text) or is_unexplained:
            faults.append(f"{module}:{token.start[0]}: {text}")
    return faults


def unreserved_names(module: Module) -> list[str]:
    """Return the module if its name, or the name of its folder, says nothing or ends in -ing."""
    name = module.path.parent.name if module.is_package else module.path.stem
    is_bad = name in FORBIDDEN_NAMES or (name.endswith("ing") and name not in RESERVED_NAMES)
    return [str(module)] if is_bad else []


def names_with_ids(module: Module) -> list[str]:
    """Return the names of tests that contain a requirement id."""
    nodes = (*module.find(ast.ClassDef), *module.functions())
    names = {node.name: f"{module}:{node.lineno}: {node.name}" for node in nodes}
    tests = {name: place for name, place in names.items() if name.lower().startswith("test")}
    return [place for name, place in tests.items() if REQUIREMENT_ID.search(name)] + [
        str(module)
    ] * bool(REQUIREMENT_ID.search(module.path.stem))


def faults_of(rule: Rule, modules: tuple[Module, ...]) -> list[str]:
    """Return the faults of all modules."""
    return [fault for module in modules for fault in rule(module)]


@pytest.mark.parametrize(
    "rule", [literal_splats, positional_fields, private_imports, unexplained_directives]
)
def test_module_follows_the_rule(rule: Rule) -> None:
    faults = faults_of(rule, all_modules())

    assert not faults, listing(faults)


@pytest.mark.parametrize("rule", [late_wiring, unreserved_names])
def test_module_of_a_package_follows_the_rule(rule: Rule) -> None:
    faults = faults_of(rule, source_modules())

    assert not faults, listing(faults)


def test_name_of_a_test_contains_no_requirement_id() -> None:
    faults = faults_of(names_with_ids, modules_of_tests())

    assert not faults, listing(faults)


SERVICE_FILE: Final = SERVICES / "harebell" / "ticker" / "service.py"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (literal_splats, "run(*(a, b))", "run(*pair)"),
        (literal_splats, "items = [*[a, b], c]", "first, *(a, b) = items"),
        (
            positional_fields,
            "@dataclass(frozen=True)\nclass A:\n  a: int\n  b: int\n  c: int\n  d: int",
            "@dataclass(kw_only=True)\nclass A:\n  a: int\n  b: int\n  c: int\n  d: int",
        ),
        (
            positional_fields,
            "class A(NamedTuple):\n  a: int\n  b: int\n  c: int\n  d: int",
            "class A(NamedTuple):\n  'By decision 19.'\n  a: int\n  b: int\n  c: int\n  d: int",
        ),
        (late_wiring, "leases.stop = stop", "self.stop = stop"),
        (late_wiring, "self.leases.stop = stop", "stop = leases.stop"),
        (late_wiring, "pool.size += 1", "self.size += 1"),
        (private_imports, "from harebell.ticker.stager import _SQL", "from a import __version__"),
        (unexplained_directives, "x = 1  # noqa: S101", "x = 1  # noqa: S101  # a reason"),
        (unexplained_directives, "x = 1  # noqa", "x = 1  # the word noqa is missing"),
        (unexplained_directives, "x = 1  # noqa: E501, S1 #", "x = 1  # noqa: E501, S1 (long)"),
        (
            unexplained_directives,
            "x = 1  # type: ignore[misc]",
            "x = 1  # type: ignore[misc]  # a reason",
        ),
        (unexplained_directives, "x = 1  # type: ignore  # why", "x = 1  # a type to ignore"),
        (unexplained_directives, "x = 1  # fmt: skip", "x = 1  # fmt is a word"),
        (names_with_ids, "def test_s67_runs(): ...", "def test_4_runs_within_10_s(): ..."),
        (names_with_ids, "async def test_ask2_it(): ...", "async def test_task2_runs(): ..."),
        (names_with_ids, "class TestS12: ...\ndef test_a_s12(): ...", "class Plans12: ..."),
    ],
)
def test_rule_finds_the_fault_of_the_bad_example_only(rule: Rule, bad: str, good: str) -> None:
    assert rule(Module(SERVICE_FILE, bad))
    assert not rule(Module(SERVICE_FILE, good))


@pytest.mark.parametrize(
    ("path", "is_reserved"),
    [
        ("ticker/telling.py", False),
        ("ticker/helpers.py", False),
        ("executor/asking/__init__.py", False),
        ("executor/claiming/__init__.py", True),
        ("ticker/model/planning.py", True),
        ("ticker/stager.py", True),
    ],
)
def test_module_name_ends_in_ing_only_if_reserved(path: str, *, is_reserved: bool) -> None:
    assert unreserved_names(Module(SERVICES / "harebell" / path, "")) == (
        [] if is_reserved else [f"services/harebell/{path}"]
    )


def test_public_class_name_occurs_once() -> None:
    homes = [
        (node.name, f"{module}:{node.lineno}")
        for module in source_modules()
        for node in module.find(ast.ClassDef)
        if not node.name.startswith("_")
    ]
    counts = Counter(name for name, _ in homes)
    faults = [f"{name}: {home}" for name, home in homes if counts[name] > 1]

    assert not faults, listing(faults)
