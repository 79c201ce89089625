"""The tree has the layout of the style guide: packages, schemas, migrations and wheels."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.architecture.command_line import visible_leaves
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
MIGRATIONS: Final = SERVICES / "harebell" / "storage" / "migrations"


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


def test_package_declares_that_it_has_types() -> None:
    folders = [path.parent for each in NAMESPACES for path in each.glob("*/__init__.py")]

    assert folders
    assert [str(each) for each in folders if not (each / "py.typed").exists()] == []


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
