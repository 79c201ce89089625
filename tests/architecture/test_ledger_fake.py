"""The in-memory ledger answers every statement of the storage modules of runs."""

import importlib
from collections.abc import Iterator
from dataclasses import astuple
from types import ModuleType
from typing import Final

import pytest
from tests.fakes.ledger.pool import ANSWERS

from harebell.storage.runs import (
    claims,
    completion,
    delays,
    delegation,
    overlap,
    rate_limits,
    recovery,
    staging,
)

# The import registers the answers.
importlib.import_module("tests.fakes.ledger.ledger")

FIRST_WORDS: Final = ("DELETE", "INSERT", "SELECT", "UPDATE", "WITH")


def statements_of(module: ModuleType) -> Iterator[str]:
    """Yield the statements in `STATEMENTS` and in the other constants of the module."""
    for text in (*vars(module).values(), *astuple(module.STATEMENTS)):
        if isinstance(text, str) and text.strip().startswith(FIRST_WORDS):
            yield text


@pytest.mark.requirement("S127")
@pytest.mark.parametrize(
    "module", [claims, completion, delays, delegation, overlap, rate_limits, recovery, staging]
)
def test_in_memory_ledger_answers_every_statement_of_the_module(module: ModuleType) -> None:
    statements = set(statements_of(module))

    assert len(statements) > (0 if module is delays else 2)  # a module without any is not found
    assert statements <= set(ANSWERS)
