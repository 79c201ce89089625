"""No service names a statement, because a pooler gives each transaction another session."""

import re
from pathlib import Path

import harebell.storage.engine

SERVICES = Path(harebell.storage.engine.__file__).parents[1]
NAMING = re.compile(r"\.(cursor|prepare)\(")
# The audit connects without a pooler (`refuse_pooler`).
DIRECT = {SERVICES / "audit" / "liveness.py"}


def test_only_the_audit_uses_a_statement_with_a_name() -> None:
    found = {file for file in SERVICES.rglob("*.py") if NAMING.search(file.read_text())}

    assert found == DIRECT
