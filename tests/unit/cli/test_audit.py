"""`harebell audit` before it reaches a database."""

import subprocess
import sys

import pytest
from tests.unit.cli.conftest import CommandLine

LOADED_DRIVERS = """
import sys
import harebell.cli.app
print([name for name in ("asyncpg", "sqlalchemy") if name in sys.modules])
"""


def test_app_loads_no_driver_of_the_database() -> None:
    completed = subprocess.run(  # noqa: S603  # the command is a constant
        [sys.executable, "-c", LOADED_DRIVERS], capture_output=True, text=True, check=True
    )

    assert completed.stdout == "[]\n"


def test_audit_names_the_variable_when_the_database_url_is_missing(cli: CommandLine) -> None:
    result = cli("audit", HAREBELL_DATABASE_URL="")

    assert result.exit_code == 2
    assert "HAREBELL_DATABASE_URL" in result.stderr


@pytest.mark.parametrize("arguments", [["--late-after", "soon"], ["--watch", "--every", "often"]])
def test_audit_names_the_option_when_a_duration_is_invalid(
    cli: CommandLine, arguments: list[str]
) -> None:
    result = cli("audit", *arguments, HAREBELL_DATABASE_URL="postgresql://db.example/x")

    field = arguments[-2].strip("-").replace("-", "_")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"harebell: {field}: ")


def test_audit_fails_with_one_line_when_the_database_is_unreachable(cli: CommandLine) -> None:
    result = cli("audit", HAREBELL_DATABASE_URL="postgresql://127.0.0.1:1/x")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_port_of_the_gauges_needs_a_repeated_audit(cli: CommandLine) -> None:
    result = cli(
        "audit", "--metrics-port", "9100", HAREBELL_DATABASE_URL="postgresql://127.0.0.1:1/x"
    )

    assert result.exit_code == 2
    assert result.stderr.startswith("harebell: metrics_port: ")
    assert "--watch" in result.stderr
