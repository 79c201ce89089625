"""The table of features is whole, and every test that it names exists."""

import ast
import re
from typing import Final

import pytest
from tests.architecture.sources import ROOT, Function

TABLE: Final = ROOT / "docs" / "features.md"
ROW: Final = re.compile(r"^\| (S\d+|ask \d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED: Final = re.compile(r"`([\w/]+\.py)::(\w+)`")
MISSING: Final = "not there yet"

ROWS: Final = [*(f"S{n:02}" for n in range(1, 129)), *(f"ask {n}" for n in range(1, 26))]


def table() -> list[tuple[str, str]]:
    return [(id_, shown) for id_, _, shown in ROW.findall(TABLE.read_text())]


def named() -> set[tuple[str, str]]:
    return {name for _, shown in table() for name in NAMED.findall(shown)}


def test_every_feature_and_every_ask_has_its_row_in_order() -> None:
    assert [id_ for id_, _ in table()] == ROWS


@pytest.mark.parametrize(("id_", "shown"), table())
def test_a_row_names_tests_or_says_that_there_is_none(id_: str, shown: str) -> None:
    assert NAMED.search(shown) or shown.startswith(MISSING), id_


@pytest.mark.parametrize("path", sorted({path for path, _ in named()}))
def test_every_test_that_the_table_names_exists(path: str) -> None:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    there = {node.name for node in tree.body if isinstance(node, Function)}

    assert {name for file, name in named() if file == path} <= there
