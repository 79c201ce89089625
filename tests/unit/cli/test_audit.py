"""`harebell audit` before it reaches a database, and what the others are spared."""

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import CommandLine

LOADED = """
import sys
import harebell.cli.app
print([name for name in ("asyncpg", "sqlalchemy") if name in sys.modules])
"""


def test_no_other_command_loads_the_drivers_of_the_database() -> None:
    done = subprocess.run(  # noqa: S603  # the command is ours
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_without_a_database_the_variable_is_named(cli: "CommandLine") -> None:
    result = cli("audit", HAREBELL_DATABASE_URL="")

    assert result.exit_code == 2
    assert "HAREBELL_DATABASE_URL" in result.stderr


@pytest.mark.parametrize("words", [["--late-after", "soon"], ["--watch", "--every", "often"]])
def test_what_is_no_duration_names_its_option(cli: "CommandLine", words: list[str]) -> None:
    result = cli("audit", *words, HAREBELL_DATABASE_URL="postgresql://nowhere.example/x")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"harebell: {words[-2].strip('-').replace('-', '_')}: ")


def test_a_database_that_cannot_be_reached_is_no_clean_audit(cli: "CommandLine") -> None:
    result = cli("audit", HAREBELL_DATABASE_URL="postgresql://127.0.0.1:1/x")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
