"""No name of the repository is an old name of the changelog.

The check covers only names that no English word can be mistaken for.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.documents import documents
from tests.architecture.source_tree import (
    ROOT,
    SCHEMAS,
    SERVICES,
    all_modules,
    listing,
    source_modules,
)
from tests.architecture.vocabulary import OldName, old_names, read_old_names

from harebell.storage.tables import metadata

SETTING: Final = re.compile(r"HAREBELL_[A-Z_]+")
METRIC: Final = re.compile(r"harebell_[a-z_]+")
# Commands, queries, events and failpoints begin with the name of an entity or of a service.
MESSAGE: Final = re.compile(
    r"(?:schedule|run|dlq|breaker|watch|replay|ticket|message|liveness|replay_job"
    r"|intake|ticker|dispatcher|executor|dlq_inspector)(?:\.[a-z_]+)+"
)
FILE: Final = re.compile(r"[\w/]+\.(?:py|sh|md)")
CLASS: Final = re.compile(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*")
OTHER_FILES: Final = ("*.yml", "*.yaml", "*.json", "*.toml", "*.conf", "*.ini", "*.sh", "Makefile")
FOLDERS: Final = (".ci", "compose", "schemas", "services", "tests")


def names_like(pattern: re.Pattern[str]) -> list[str]:
    """Return the old names that match the pattern completely."""
    return [name.old for name in old_names() if pattern.fullmatch(name.old)]


@cache
def written_texts() -> tuple[tuple[str, str], ...]:
    """Return the texts that can contain a name, each with its place."""
    return tuple(_written_texts())


def _written_texts() -> Iterator[tuple[str, str]]:
    for module in all_modules():
        for string in module.strings():
            yield f"{module}:{string.lineno}", str(string.value)
        for text in module.texts:
            yield str(text), text.text
    for page in documents():
        yield str(page), page.text
    for path in other_files():
        yield str(path.relative_to(ROOT)), path.name
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def other_files() -> list[Path]:
    """Return the text files that are neither Python nor Markdown."""
    paths = [ROOT / "Makefile", ROOT / "pyproject.toml"]
    for folder in FOLDERS:
        paths += [path for glob in OTHER_FILES for path in (ROOT / folder).rglob(glob)]
    return paths


def uses_of(names: list[str], texts: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the places that contain one of the names as a whole word."""
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)")
    return [f"{place}: {old}" for place, text in texts for old in set(pattern.findall(text))]


@pytest.mark.parametrize(
    "pattern", [SETTING, METRIC, MESSAGE], ids=["setting", "metric", "message"]
)
def test_text_contains_no_old_name(pattern: re.Pattern[str]) -> None:
    names = names_like(pattern)

    assert names, "The changelog contains no such names."
    faults = uses_of(names, written_texts())
    assert not faults, listing(faults)


def test_module_has_no_old_path() -> None:
    folders = [SCHEMAS / "harebell", SERVICES / "harebell", ROOT]
    faults = [
        name for name in names_like(FILE) if any((folder / name).is_file() for folder in folders)
    ]

    assert not faults, listing(faults)


def test_class_has_no_old_name_in_its_module() -> None:
    old = {(name.home, name.old) for name in old_names() if CLASS.fullmatch(name.old)}
    faults = [f"{module}:{node.lineno}: {node.name}" for module, node in _classes(old)]

    assert not faults, listing(faults)


def _classes(old: set[tuple[str, str]]) -> Iterator[tuple[str, ast.ClassDef]]:
    for module in source_modules():
        home = "/".join(module.path.parts[module.path.parts.index("harebell") + 1 :])
        yield from (
            (str(module), node) for node in module.find(ast.ClassDef) if (home, node.name) in old
        )


def test_table_has_no_old_name() -> None:
    old = {name.old for name in old_names() if name.home == "table"}

    assert old & set(metadata.tables) == set()


EXAMPLE: Final = """
- `dev`: `dev/door.py` → `dev/table.py`; `dev/table.py` → `dev/chair.py`
- `ticker`: `ticker/service.py` → `ticker/nap.py`
- `ticker/service.py`: `rest` → `pause`
- settings: `HAREBELL_NAP` → `HAREBELL_PAUSE`
- table: `naps` → `pauses`
- `runtime`: `harebell_naps_total{why}` → `harebell_pauses_total{reason}`
- `dev/table.py`: `Drawer` → `Shelf`; `Page` → `Page[V]`; `Lamp` → `(deleted)`
"""


def test_old_names_are_read_from_the_pairs_of_a_list() -> None:
    assert read_old_names(EXAMPLE) == (
        OldName(old="dev/door.py", home="dev"),
        OldName(old="rest", home="ticker/service.py"),
        OldName(old="HAREBELL_NAP", home="settings"),
        OldName(old="naps", home="table"),
        OldName(old="harebell_naps_total", home="runtime"),
        OldName(old="Drawer", home="dev/table.py"),
        OldName(old="Lamp", home="dev/table.py"),
    )


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        ("publish to acme.dlq.nap now", True),
        ('"dlq.nap"', True),
        ("dlq.napkin or dlq.nap_all", False),
        ("HAREBELL_NAP=1", True),
        ("HAREBELL_NAPS=1", False),
    ],
)
def test_old_name_is_found_as_a_whole_word(text: str, *, is_used: bool) -> None:
    assert bool(uses_of(["dlq.nap", "HAREBELL_NAP"], (("page", text),))) is is_used
