"""The contract tests of the ledger run with PostgreSQL and with the in-memory ledger."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.architecture.source_tree import ROOT, TESTS
from tests.contract.conftest import IN_MEMORY, POSTGRESQL

MIN_TESTS = 60  # of the ledger, with their parameters
LEDGERS = {IN_MEMORY, POSTGRESQL}


@pytest.mark.requirement("S127")
def test_each_contract_test_of_the_ledger_runs_with_both_ledgers() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(Path(__file__).parent)]

    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603  # a fixed command

    tests: dict[str, set[str]] = {}
    for name, parameters in re.findall(r"^(\S+)\[(.*)\]$", output, re.MULTILINE):
        values = re.split("-", parameters)
        for ledger in LEDGERS & set(values):
            key = f"{name}[{'-'.join(each for each in values if each != ledger)}]"
            tests.setdefault(key, set()).add(ledger)
    assert len(tests) > MIN_TESTS
    assert {frozenset(each) for each in tests.values()} == {frozenset(LEDGERS)}


@pytest.mark.requirement("S127")
def test_no_package_contains_the_in_memory_ledger() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert packages == ["services/harebell", "schemas/harebell"]
    assert not any((ROOT / each).is_relative_to(TESTS) for each in packages)
