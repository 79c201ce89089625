"""Modules and functions are small enough to be read in one go."""

import ast
from typing import Final

import pytest
from tests.architecture.sources import ALL, OURS

MAX_MODULE: Final = 300  # lines
MAX_FUNCTION: Final = 40


@pytest.mark.requirement("S125")
def test_no_module_is_too_long() -> None:
    lengths = {str(module): len(module.text.splitlines()) for module in ALL}

    assert {name: lines for name, lines in lengths.items() if lines > MAX_MODULE} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{module}: {each.name}": (each.end_lineno or 0) - each.lineno + 1
        for module in ALL
        for each in module.functions()
    }

    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [str(module) for module in OURS if not ast.get_docstring(module.tree)] == []
