"""The start of the command line: the packages that it imports, its help and its completion."""

import os
import subprocess
import sys

import pytest
from tests.unit.cli.test_help import commands

from harebell.cli.command_tree import COMMAND_TREE
from harebell.cli.framework.lazy_commands import CommandEntry, CommandTree, LazyCommand

# The heavy packages of Harebell. The help and the version of `harebell` need none of them.
HEAVY = {
    "aio_pika",
    "aiohttp",
    "alembic",
    "asyncio",
    "asyncpg",
    "croniter",
    "harebell.client",
    "harebell.contract.message",
    "harebell.messaging",
    "harebell.storage",
    "orjson",
    "prometheus_client",
    "pydantic",
    "rich",
    "sqlalchemy",
    "structlog",
    "uvloop",
    "yaml",
}
NEEDED_BY_QUERIES = {
    "aio_pika",
    "asyncio",
    "harebell.client",
    "harebell.contract.message",
    "orjson",
    "pydantic",
    "rich",
}
# A command ends the process, so a handler prints the imported modules at the end.
RUN = """
import atexit, sys
sys.argv[0] = "harebell"
from harebell.cli.__main__ import main
atexit.register(lambda: print("\\nMODULES", *sys.modules))
main()
"""
NO_BROKER = "amqp://guest:guest@127.0.0.1:1"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # the command is a constant
        [sys.executable, "-c", RUN, *arguments],
        env=os.environ | {"HAREBELL_AMQP_URL": NO_BROKER, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def imported(*arguments: str) -> set[str]:
    """Return the modules that a process of the command line has imported at its end."""
    completed = run(*arguments)
    _, marker, modules = completed.stdout.rpartition("\nMODULES ")
    assert marker, completed.stderr
    return set(modules.split())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_version_and_help_import_no_heavy_package(arguments: list[str]) -> None:
    assert imported(*arguments) & HEAVY == set()


def test_help_of_a_group_imports_only_the_package_with_which_typer_checks_options() -> None:
    assert imported("schedule", "--help") & HEAVY <= {"pydantic"}


@pytest.mark.parametrize(
    "arguments",
    [["schedule", "list"], ["run", "list"], ["why", "daily"], ["dlq", "list"], ["breaker", "list"]],
)
def test_query_imports_only_the_packages_of_the_client(arguments: list[str]) -> None:
    modules = imported(*arguments)

    assert "aio_pika" in modules
    assert modules & HEAVY <= NEEDED_BY_QUERIES


def entries(tree: CommandTree, *path: str) -> dict[tuple[str, ...], CommandEntry]:
    """Return the entry of each command by its path."""
    found: dict[tuple[str, ...], CommandEntry] = {}
    for name, entry in tree.items():
        if isinstance(entry, CommandEntry):
            found[*path, name] = entry
        else:
            found |= entries(entry.members, *path, name)
    return found


def test_tree_has_the_short_help_of_each_command() -> None:
    differences = {
        path: loaded.get_short_help_str(limit=1_000)
        for path, entry in entries(COMMAND_TREE).items()
        if (loaded := commands()[path]).get_short_help_str(limit=1_000)
        != LazyCommand(path[-1], entry).get_short_help_str(limit=1_000)
        or loaded.hidden != entry.is_hidden
    }

    assert differences == {}


def test_tree_has_each_command_of_its_modules() -> None:
    listed = {(entry.module, path[-1]) for path, entry in entries(COMMAND_TREE).items()}
    modules = {entry.module for entry in entries(COMMAND_TREE).values()}
    existing = {
        (module, info.name)
        for module in modules
        for info in sys.modules[module].app.registered_commands
    }

    assert commands()
    assert listed == existing


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("harebell sch", {"schedule"}),
        ("harebell schedule p", {"put", "patch", "pause", "preview"}),
        ("harebell dlq d", {"discard"}),
        ("harebell dlq replays ", {"list", "get", "pause", "resume", "abort"}),
        ("harebell run list --own", {"--owner"}),
    ],
)
def test_completion_knows_commands_and_options(words: str, completions: set[str]) -> None:
    position = str(len(words.split(" ")) - 1)

    completed = run(_HAREBELL_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=position)

    assert set(completed.stdout.partition("\nMODULES")[0].split()) == completions


def test_misspelled_command_is_wrong_usage() -> None:
    completed = run("schedule", "lits")

    assert completed.returncode == 2
    assert "No such command 'lits'" in completed.stderr
