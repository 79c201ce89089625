"""The ledger in memory: whole, and out of the reach of every service."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.fakes.ledger import pool
from tests.fakes.ledger.ledger import ANSWERING

from harebell.storage.runs import claims, completion, overlap, rate_limits, recovery, staging

ROOT = Path(__file__).parents[2]
SHIPPED = [path for top in ("services", "schemas") for path in (ROOT / top).rglob("*.py")]


@pytest.mark.requirement("S127")
@pytest.mark.parametrize("module", [claims, completion, rate_limits, staging, recovery, overlap])
def test_every_statement_of_the_ledger_is_answered_from_memory(module: ModuleType) -> None:
    texts = [text for text in vars(module).values() if isinstance(text, str)]
    statements = [text for text in texts if text.strip().startswith(("INSERT", "UPDATE", "WITH"))]
    statements += [text for text in texts if text.strip().startswith(("SELECT", "DELETE"))]

    assert ANSWERING
    assert len(statements) > 2
    assert [text for text in statements if text not in pool.ANSWERS] == []


@pytest.mark.requirement("S127")
def test_no_setting_and_no_import_leads_a_service_to_the_ledger_in_memory() -> None:
    """So production refuses it by not knowing it: what is shipped imports nothing of tests."""
    imported = {name for path in SHIPPED for name in imports(path)}

    assert "harebell.kernel.db.ledger" in imported
    assert [name for name in imported if name.split(".")[0] == "tests"] == []


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
