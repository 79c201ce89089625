"""What is printed: tables or JSON on stdout, messages on stderr. No text of others is trusted."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harebell.contract.errors import HarebellError

WIDTH: Final = 1000  # characters of a line; a terminal wraps it, but folded ids cannot be copied
ALWAYS_SO: Final = "ok"  # a field that says nothing where errors are not shown
NONE: Final = "-"
TEXT: Final = "text"  # a field that says in words what its object holds
STATES: Final = {
    "active": "green",
    "succeeded": "green",
    "replayed": "green",
    "running": "cyan",
    "retrying": "yellow",
    "paused": "yellow",
    "unresolved": "yellow",
    "blocked": "yellow",
    "errored": "red",
    "dead": "red",
    "open": "red",
}


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Output:
    def __init__(self, form: Format) -> None:
        self._form = form

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """JSON has every field, a table only `columns`."""
        if self._form is Format.JSON:
            _print_json(list(rows))
        elif rows:
            _console().print(_table(rows, columns))

    def record(self, record: Mapping[str, Any], **parts: Sequence[str]) -> None:
        """`parts` are fields that hold rows of their own, with the columns of their tables."""
        if self._form is Format.JSON:
            _print_json(record)
            return
        console = _console()
        apart = {*parts, ALWAYS_SO}
        console.print(_grid({name: record[name] for name in record if name not in apart}))
        for name, columns in parts.items():
            if record.get(name):
                console.print(f"\n{name}", style="bold")
                console.print(_table(record[name], columns))

    def say(self, message: str) -> None:
        typer.echo(printable(message), err=True)


def error_line(field: str | None, reason: str, code: str) -> str:
    where = f"{field}: " if field else ""
    return f"{where}{reason} ({code})"


def error_line_of(error: HarebellError) -> str:
    return f"harebell: {error_line(error.field, error.reason, error.code)}"


def printable(text: str) -> str:
    """Escapes what could steer a terminal; a key or an error message may hold anything."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _console() -> Console:
    return Console(file=sys.stdout, width=WIDTH, highlight=False)


def _print_json(value: object) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(column, row.get(column)) for column in columns))
    return table


def _grid(record: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    for name, value in record.items():
        grid.add_row(name.replace("_", " "), _cell(name, value))
    return grid


def _cell(name: str, value: object) -> Text:
    if value is None or value in ([], {}):
        return Text(NONE)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Text(printable(", ".join(value)))
    if isinstance(value, list) and all(isinstance(item, dict) and TEXT in item for item in value):
        return Text(printable("; ".join(item[TEXT] for item in value)))
    if not isinstance(value, str):
        return Text(printable(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))
    return Text(printable(value), style=STATES.get(value, "") if name.endswith("state") else "")
