"""Commands that are imported when a user names them.

The help and the completion of a group show a command without its import, so both start quickly
(decision 32).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command of the object `app` in `module`. `help` is the first sentence of its help."""

    module: str
    help: str
    is_hidden: bool = False  # a second name of another command


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group of commands, by name in the order of the help."""

    help: str
    members: "CommandTree"


CommandTree: TypeAlias = Mapping[str, CommandEntry | GroupEntry]


class LazyCommand(TyperCommand):
    """The name and the help of a command, which imports the command when it runs."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name=name, help=entry.help, hidden=entry.is_hidden, rich_markup_mode=None)
        self._command_name = name
        self._module = entry.module

    def load(self) -> TyperCommand:
        """Import the module of the command and return the command with its options."""
        plain = typer.Typer(rich_markup_mode=None)  # the mode applies to the added commands
        plain.add_typer(import_module(self._module).app)
        return cast("TyperCommand", get_group(plain).commands[self._command_name])

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # typer's own types
        """Return the context of the imported command, which typer then executes."""
        return self.load().make_context(*arguments, **options)


def lazy_group(tree: CommandTree) -> type[TyperGroup]:
    """Return the class of a root group with the commands of `tree`, for `typer.Typer`."""

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:  # noqa: ANN401  # the attributes of typer
            super().__init__(**attributes)
            self.commands.update(_commands(tree))

    return LazyGroup


def _commands(tree: CommandTree) -> dict[str, TyperCommand | TyperGroup]:
    return {name: _command(name, entry) for name, entry in tree.items()}


def _command(name: str, entry: CommandEntry | GroupEntry) -> TyperCommand | TyperGroup:
    if isinstance(entry, CommandEntry):
        return LazyCommand(name, entry)
    return TyperGroup(
        name=name,
        help=entry.help,
        commands=dict(_commands(entry.members)),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
