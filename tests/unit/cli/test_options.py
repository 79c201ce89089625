"""The global options, the environment variables, and the exit codes of wrong usage."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker

from harebell.contract import __version__


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tenant", "acme", "--timeout", "3", "schedule", "list"],
        ["schedule", "list", "--tenant", "acme", "--timeout", "3"],
        ["--tenant", "other", "--timeout", "3", "schedule", "list", "--tenant", "acme"],
    ],
)
def test_global_option_may_precede_or_follow_the_command(
    cli: CommandLine, broker: FakeBroker, arguments: list[str]
) -> None:
    cli(*arguments)

    assert broker.requests[0].tenant == "acme"
    assert broker.connections == [("amqp://broker.example", 3.0)]


def test_global_option_reads_its_variable(cli: CommandLine, broker: FakeBroker) -> None:
    result = cli(
        "run",
        "list",
        HAREBELL_AMQP_URL="amqp://other.example",
        HAREBELL_TENANT="acme",
        HAREBELL_TIMEOUT="7",
        HAREBELL_OUTPUT="json",
    )

    assert result.stdout == "[]\n"
    assert broker.requests[0].tenant == "acme"
    assert broker.connections == [("amqp://other.example", 7.0)]


@pytest.mark.parametrize(
    "arguments", [["--tenant", "acme", "run", "list"], ["run", "list", "--tenant", "acme"]]
)
def test_global_option_overrides_its_variable(
    cli: CommandLine, broker: FakeBroker, arguments: list[str]
) -> None:
    cli(*arguments, HAREBELL_TENANT="other")

    assert broker.requests[0].tenant == "acme"


def test_command_names_the_variable_when_the_broker_url_is_missing(cli: CommandLine) -> None:
    result = cli("run", "list", HAREBELL_AMQP_URL="")

    assert result.exit_code == 2
    assert "HAREBELL_AMQP_URL" in result.stderr


@pytest.mark.requirement("P13")
@pytest.mark.parametrize("precedes", [True, False])
def test_url_of_the_broker_is_read_from_a_file(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path, *, precedes: bool
) -> None:
    file = tmp_path / "amqp-url"
    file.write_text("amqp://secret@file.example\n")
    option = ["--amqp-url-file", str(file)]

    cli(
        *(option if precedes else []),
        "run",
        "list",
        *([] if precedes else option),
        HAREBELL_AMQP_URL="",
    )
    cli("run", "list", HAREBELL_AMQP_URL="", HAREBELL_AMQP_URL_FILE=str(file))
    cli("run", "list", HAREBELL_AMQP_URL_FILE=str(file))

    assert [url for url, _ in broker.connections] == [
        "amqp://secret@file.example",
        "amqp://secret@file.example",
        "amqp://broker.example",
    ]


def test_unreadable_file_with_the_url_is_one_line(cli: CommandLine, tmp_path: Path) -> None:
    missing = tmp_path / "missing"

    result = cli("run", "list", HAREBELL_AMQP_URL="", HAREBELL_AMQP_URL_FILE=str(missing))

    assert result.exit_code == 2
    assert result.stderr == (
        f"harebell: The file {missing} with the URL of the broker cannot be read: "
        "No such file or directory. (no_amqp_url)\n"
    )


def test_unreachable_broker_is_one_line(cli: CommandLine, broker: FakeBroker) -> None:
    broker.is_up = False

    result = cli("run", "list")

    assert result.exit_code == 1
    assert result.stderr == "harebell: The broker refused the connection. (broker_unavailable)\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such"],
        ["run", "list", "--limit", "0"],
        ["run", "list", "-o", "xml"],
        ["run", "get"],
        ["dev", "status", "--amqp-url", "amqp://broker.example"],
    ],
)
def test_wrong_usage_exits_with_2_and_prints_no_result(
    cli: CommandLine, arguments: list[str]
) -> None:
    result = cli(*arguments)

    assert result.exit_code == 2
    assert result.stdout == ""


def test_version_is_printed(cli: CommandLine) -> None:
    assert cli("--version", HAREBELL_VERSION="latest").stdout == f"harebell {__version__}\n"


def test_process_prints_one_line_without_a_traceback_or_a_password() -> None:
    environment = os.environ | {"HAREBELL_AMQP_URL": "amqp://guest:secret@127.0.0.1:1"}

    completed = subprocess.run(  # the command is a constant
        [sys.executable, "-m", "harebell.cli", "run", "list"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (completed.returncode, completed.stdout) == (1, "")
    assert len(completed.stderr.splitlines()) == 1
    assert "secret" not in completed.stderr
