"""The commands of `harebell` as values, as typer builds them."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import typer.main

from harebell.cli.app import app
from harebell.cli.framework.lazy_commands import LazyCommand

# The name of a command: the names of its groups, then its own name.
CommandPath = tuple[str, ...]


@cache
def commands() -> tuple[tuple[CommandPath, Any], ...]:
    """Return every group and every command. The first has the empty path."""
    return tuple(_walk((), typer.main.get_command(app)))


def _walk(path: CommandPath, command: Any) -> Iterator[tuple[CommandPath, Any]]:
    yield path, command.load() if isinstance(command, LazyCommand) else command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk((*path, name), inner)


def groups() -> set[CommandPath]:
    """Return the paths of the groups below the root, such as `("dlq", "groups")`."""
    return {path for path, command in commands() if path and hasattr(command, "commands")}


def visible_leaves() -> set[CommandPath]:
    """Return the paths of the commands that are neither groups nor hidden aliases."""
    leaves = {path for path, command in commands() if not command.hidden}
    return leaves - groups() - {()}
