"""The help of every command, the hidden aliases, and the options that read a variable."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.main
from tests.unit.cli.conftest import CommandLine

from harebell.cli.app import app
from harebell.cli.framework.lazy_commands import LazyCommand

SCHEDULE_VERBS = """
put get list patch delete pause resume cancel trigger skip backfill preview
history diff rollback why
"""
ROOT_VERBS = """
schedule run dlq breaker calendar dev topology tenants why forecast top audit doctor webhook apply
export import archive
"""
MIN_WORDS = 4
MAX_LINE = 80  # characters, the width of a small terminal
GLOBAL_VARIABLES = {
    "amqp_url": "HAREBELL_AMQP_URL",
    "amqp_url_file": "HAREBELL_AMQP_URL_FILE",
    "tenant": "HAREBELL_TENANT",
    "exchange": "HAREBELL_EXCHANGE",
    "timeout": "HAREBELL_TIMEOUT",
    "output": "HAREBELL_OUTPUT",
}


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """Return every group and every command by its path. The root has the empty path."""
    return dict(_walk((), typer.main.get_command(app)))


def _walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command.load() if isinstance(command, LazyCommand) else command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk((*path, name), inner)


def test_every_command_and_option_has_help_in_full_sentences() -> None:
    texts = {" ".join(path): command.help or "" for path, command in commands().items()}
    for path, command in commands().items():
        for parameter in command.params:
            texts[f"{' '.join(path)} {parameter.name}"] = parameter.help or ""

    faults = [
        name
        for name, text in texts.items()
        if not text.endswith(".") or not text[0].isupper() or len(text.split()) < MIN_WORDS
    ]

    assert faults == []


def test_only_the_global_options_and_the_database_url_read_a_variable() -> None:
    variables = {
        (*path, parameter.name): parameter.envvar
        for path, command in commands().items()
        for parameter in command.params
        if parameter.envvar is not None
    }

    expected: dict[tuple[str, ...], str] = {
        (name,): variable for name, variable in GLOBAL_VARIABLES.items()
    }
    expected["audit", "database_url"] = "HAREBELL_DATABASE_URL"
    expected["audit", "tenants_file"] = "HAREBELL_TENANTS_FILE"
    expected["tenants", "usage", "management_url"] = "HAREBELL_MANAGEMENT_URL"
    expected["doctor", "database_url"] = "HAREBELL_DATABASE_URL"
    expected["doctor", "management_url"] = "HAREBELL_MANAGEMENT_URL"
    for verb in ("list", "verify", "show"):
        expected["archive", verb, "directory"] = "HAREBELL_ARCHIVE_DIR"
    assert variables == expected


def test_no_command_derives_the_variables_of_its_options() -> None:
    prefixes = {
        command.context_settings.get("auto_envvar_prefix") for command in commands().values()
    }

    assert prefixes == {None}


def test_help_of_the_root_names_each_variable_once(cli: CommandLine) -> None:
    text = cli("--help").stdout

    assert [len(re.findall(rf"\b{name}\b", text)) for name in GLOBAL_VARIABLES.values()] == [
        1
    ] * len(GLOBAL_VARIABLES)


@pytest.mark.parametrize(
    ("alias", "name"),
    [(("dlq", "show"), ("dlq", "get")), (("dlq", "drop"), ("dlq", "discard"))],
)
def test_alias_is_hidden_and_has_the_options_of_its_command(
    cli: CommandLine, alias: tuple[str, str], name: tuple[str, str]
) -> None:
    hidden, visible = commands()[alias], commands()[name]

    assert (hidden.hidden, visible.hidden) == (True, False)
    assert [each.opts for each in hidden.params] == [each.opts for each in visible.params]
    listed = [line.split()[0] for line in cli("dlq", "--help").stdout.splitlines() if line.strip()]
    assert alias[-1] not in listed
    assert name[-1] in listed


def test_no_other_command_is_hidden() -> None:
    hidden = {path for path, command in commands().items() if command.hidden}

    assert hidden == {("dlq", "show"), ("dlq", "drop")}


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_has_usage_options_and_short_lines(cli: CommandLine, path: tuple[str, ...]) -> None:
    result = cli(*path, "--help")

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith(" ".join(["Usage:", "harebell", *path]))
    assert "Options:" in lines
    assert max(map(len, lines)) <= MAX_LINE


@pytest.mark.parametrize(
    ("group", "verbs"),
    [
        ("schedule", SCHEDULE_VERBS),
        ("run", "list get watch cancel resolve"),
        ("dlq", "list get discard replay edit export import watch parked groups replays"),
        ("dlq groups", "list note mute archive reopen"),
        ("dlq replays", "list get pause resume abort"),
        ("breaker", "list open close reset"),
        ("calendar", "put get list delete"),
        ("topology", "check definitions manifests"),
        ("tenants", "check usage"),
        ("webhook", "verify keygen"),
        ("dev", "start stop status logs"),
        ("archive", "list verify show"),
        ("", ROOT_VERBS),
    ],
)
def test_group_has_the_verbs_of_the_glossary(group: str, verbs: str) -> None:
    inner = commands()[tuple(group.split())].commands

    visible = {name for name, command in inner.items() if not command.hidden}
    assert visible == set(verbs.split())
