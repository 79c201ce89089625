"""The tree has the layout of the style guide: folders, commands, schemas and wheels."""

import ast
import re
import tomllib
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.architecture.command_line import CommandPath, commands, groups, visible_leaves
from tests.architecture.documents import reference_names
from tests.architecture.metric_names import declared
from tests.architecture.source_tree import (
    ROOT,
    SCHEMAS,
    SERVICES,
    TESTS,
    Module,
    listing,
    setting_variables,
    source_modules,
)

from harebell.storage.tables import metadata

NAMESPACES: Final = (SERVICES / "harebell", SCHEMAS / "harebell")
CLI: Final = SERVICES / "harebell" / "cli"
MIGRATIONS: Final = SERVICES / "harebell" / "storage" / "migrations"
SERVICE_NAMES: Final = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector")

MIN_MODULES: Final = 3


def modules_in(folder: Path) -> set[str]:
    """Return the names of the modules and of the packages in a folder."""
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def unnamed_modules(docstring: str, names: set[str]) -> set[str]:
    """Return the names that the docstring of their package does not contain."""
    return {name for name in names if not re.search(rf"(?<!\w){name}(?!\w)", docstring)}


def packages() -> Iterator[Module]:
    """Yield the packages, without the migrations of the database."""
    for module in source_modules():
        if module.is_package and not module.path.is_relative_to(MIGRATIONS):
            yield module


def test_folder_has_three_modules() -> None:
    faults = [
        f"{package}: {len(names)}"
        for package in packages()
        if len(names := modules_in(package.path.parent)) < MIN_MODULES
    ]

    assert not faults, listing(faults)


def test_docstring_of_a_folder_names_its_modules() -> None:
    faults = [
        f"{package}: {', '.join(sorted(missing))}"
        for package in packages()
        if (
            missing := unnamed_modules(
                ast.get_docstring(package.tree) or "", modules_in(package.path.parent)
            )
        )
    ]

    assert not faults, listing(faults)


def test_module_is_named_only_as_a_whole_word() -> None:
    assert unnamed_modules("* queue   the tickets", {"queue", "tick"}) == {"tick"}


def test_folder_with_modules_is_a_package() -> None:
    folders = {module.path.parent for module in source_modules()} - set(NAMESPACES)
    faults = [str(each.relative_to(ROOT)) for each in folders if not _is_package(each)]

    assert not faults, listing(faults)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists() or folder.is_relative_to(MIGRATIONS)


@pytest.mark.parametrize("namespace", NAMESPACES, ids=["services", "schemas"])
def test_namespace_has_no_init_file_that_hides_the_other_root(namespace: Path) -> None:
    assert namespace.is_dir()
    assert not (namespace / "__init__.py").exists()


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_service_has_its_wiring_and_its_start_and_a_package_without_code(service: str) -> None:
    folder = SERVICES / "harebell" / service
    package = ast.parse((folder / "__init__.py").read_text())

    assert (folder / "service.py").exists()
    assert (folder / "__main__.py").exists()
    assert len(package.body) == 1


def test_package_declares_that_it_has_types() -> None:
    folders = [path.parent for each in NAMESPACES for path in each.glob("*/__init__.py")]

    assert folders
    assert [str(each) for each in folders if not (each / "py.typed").exists()] == []


def command_homes(path: CommandPath, *, is_group: bool) -> list[str]:
    """Return the paths in the folder `cli` that may contain the group or the command.

    A keyword of Python is no name of a module, so its module has the plural.
    """
    *outer, name = (f"{part.replace('-', '_')}{'s' * iskeyword(part)}" for part in path)
    if is_group:
        return ["/".join([*outer, f"{name}.py"]), "/".join([*outer, name, "__init__.py"])]
    return [f"{name}.py", f"*/{name}.py"]


def test_group_and_top_level_command_is_in_the_file_of_its_name() -> None:
    top_level = {path for path, _ in commands() if len(path) == 1} - groups()
    patterns = {path: command_homes(path, is_group=True) for path in groups()}
    patterns |= {path: command_homes(path, is_group=False) for path in top_level}
    faults = [
        f"harebell {' '.join(path)}: {' or '.join(homes)}"
        for path, homes in patterns.items()
        if not any(found for home in homes for found in CLI.glob(home))
    ]

    assert not faults, listing(faults)


@pytest.mark.parametrize(
    ("path", "is_group", "homes"),
    [
        (("schedule",), True, ["schedule.py", "schedule/__init__.py"]),
        (("dlq", "groups"), True, ["dlq/groups.py", "dlq/groups/__init__.py"]),
        (("why",), False, ["why.py", "*/why.py"]),
        (("import",), True, ["imports.py", "imports/__init__.py"]),
    ],
)
def test_home_of_a_command_follows_from_its_name(
    path: CommandPath, homes: list[str], *, is_group: bool
) -> None:
    assert command_homes(path, is_group=is_group) == homes


def enum_values(module: Module) -> Iterator[str]:
    """Yield the values of the states, statuses and reasons that the module defines."""
    for node in module.find(ast.ClassDef):
        is_enum = any(ast.unparse(base).endswith("Enum") for base in node.bases)
        if is_enum and node.name.endswith(("Reason", "State", "Status")):
            for each in node.body:
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
                    yield str(each.value.value)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("state or reason", {each for module in source_modules() for each in enum_values(module)}),
        ("table", set(metadata.tables)),
        ("setting", setting_variables()),
        ("verb", {path[-1] for path in visible_leaves()}),
        ("metric", {metric.name for metric in declared()}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_name_occurs_in_the_reference_pages(kind: str, names: set[str]) -> None:
    faults = [f"{kind} {name}" for name in names - reference_names()]

    assert names
    assert not faults, listing(faults)


def open_objects(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the paths in a JSON Schema at which any property is allowed."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is True:
            yield path or "/"
        for name, inner in schema.items():
            yield from open_objects(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from open_objects(inner, f"{path}/{index}")


def test_response_schema_allows_only_its_properties() -> None:
    paths = sorted((SCHEMAS / "jsonschema").glob("response.*.json"))
    faults = [
        f"{path.name}: {place}"
        for path in paths
        for place in open_objects(orjson.loads(path.read_bytes()))
    ]

    assert paths
    assert not faults, listing(faults)


def test_open_object_is_found_at_its_path() -> None:
    schema = {"anyOf": [{"additionalProperties": False}, {"additionalProperties": True}]}

    assert list(open_objects(schema)) == ["/anyOf/1"]


def test_message_has_a_golden_file_and_golden_file_has_a_message() -> None:
    golden = {path.name for path in (TESTS / "contract" / "golden").iterdir()}
    messages = {path.name for path in (SCHEMAS / "jsonschema").iterdir()}

    assert golden
    assert golden ^ messages == set()


def test_migrations_form_one_chain_from_the_initial_one() -> None:
    revision = re.compile(r'^(?:down_)?revision = "?(\w+)"?$', re.MULTILINE)
    files = sorted((MIGRATIONS / "versions").glob("[0-9]*.py"))
    chain = [revision.findall(path.read_text(encoding="utf-8")) for path in files]

    numbers = [path.name.partition("_")[0] for path in files]
    assert chain == [list(pair) for pair in zip(numbers, ["None", *numbers], strict=False)]


@pytest.mark.parametrize("project", [ROOT, SCHEMAS], ids=["harebell", "harebell-client"])
def test_wheel_contains_no_file_of_the_tests(project: Path) -> None:
    """Read the build options, because a build takes several seconds."""
    build = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    folders = [project / package for package in wheel["packages"]]

    assert not {"include", "force-include", "artifacts", "only-include"} & {*wheel, *build}
    assert {folder.name for folder in folders} == {"harebell"}
    assert not [path for each in folders for path in each.rglob("test_*.py")]
    assert not [path for each in folders for path in each.rglob("conftest.py")]
