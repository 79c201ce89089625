import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harebell.contract import __version__

if TYPE_CHECKING:
    from tests.unit.cli.conftest import CommandLine, FakeHarebell


@pytest.mark.parametrize(
    "words",
    [
        ["--tenant", "acme", "--timeout", "3", "schedule", "list"],
        ["schedule", "list", "--tenant", "acme", "--timeout", "3"],
        ["--tenant", "other", "--timeout", "3", "schedule", "list", "--tenant", "acme"],
    ],
)
def test_common_options_stand_before_or_behind_the_command(
    cli: "CommandLine", harebell: "FakeHarebell", words: list[str]
) -> None:
    cli(*words)

    assert harebell.asked[0].tenant == "acme"
    assert harebell.connected_to == [("amqp://broker.example", 3.0)]


def test_every_option_has_an_environment_variable(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    result = cli(
        "run",
        "list",
        HAREBELL_TENANT="acme",
        HAREBELL_OUTPUT="json",
        HAREBELL_RUN_LIST_LIMIT="7",
    )

    assert result.stdout == "[]\n"
    assert (harebell.asked[0].tenant, harebell.asked[0].body) == ("acme", {"limit": 7})


def test_a_flag_is_before_its_environment_variable(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    cli("run", "list", "--tenant", "acme", HAREBELL_TENANT="other")

    assert harebell.asked[0].tenant == "acme"


def test_without_a_broker_the_variable_is_named(cli: "CommandLine") -> None:
    result = cli("run", "list", HAREBELL_AMQP_URL="")

    assert result.exit_code == 2
    assert "HAREBELL_AMQP_URL" in result.stderr


def test_a_broker_that_is_away_is_one_line(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.is_up = False

    result = cli("run", "list")

    assert result.exit_code == 1
    assert result.stderr == "harebell: cannot connect: refused (broker_unavailable)\n"


@pytest.mark.parametrize(
    "words",
    [["no-such"], ["run", "list", "--limit", "0"], ["run", "list", "-o", "xml"], ["run", "get"]],
)
def test_wrong_usage_is_exit_code_2(cli: "CommandLine", words: list[str]) -> None:
    result = cli(*words)

    assert result.exit_code == 2
    assert result.stdout == ""


def test_the_version_is_printed(cli: "CommandLine") -> None:
    assert cli("--version", HAREBELL_VERSION="latest").stdout == f"harebell {__version__}\n"


def test_the_process_says_one_line_and_no_traceback() -> None:
    environment = os.environ | {"HAREBELL_AMQP_URL": "amqp://guest:secret@127.0.0.1:1"}

    done = subprocess.run(  # the command is ours
        [sys.executable, "-m", "harebell.cli", "run", "list"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr
