"""Results as tables or JSON on stdout, and messages on stderr.

The output escapes line ends, control characters and the marks that change the direction of text,
because keys and error texts come from other people.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harebell.cli.framework.options import Format
from harebell.contract.errors import HarebellError
from harebell.contract.message import Message
from harebell.contract.views import ViewResponse

# Characters of a line. A terminal wraps a long line, but a folded id cannot be copied.
WIDTH: Final = 1000
OK_FIELD: Final = "ok"  # always true, because errors are not printed as records
EMPTY_CELL: Final = "-"
TEXT_FIELD: Final = "text"  # a field that describes its object in words
STATE_STYLES: Final = {
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

Row: TypeAlias = Mapping[str, Any] | Message


class Output:
    """The output of one command in one format."""

    def __init__(self, form: Format) -> None:
        self._format = form

    def print_rows(self, rows: Sequence[Row], columns: Sequence[str], *, empty: str = "") -> None:
        """Print rows. JSON has every field, and a table only the `columns`.

        A column such as `last_run.state` is a field of an object.
        Without rows, the sentence `empty` takes the place of the table.
        """
        records = [to_json(row) for row in rows]
        if self._format is Format.JSON:
            _print_json(records)
        elif records:
            _console().print(_table(records, columns))
        elif empty:
            self.print_message(empty)

    def print_record(self, row: Row, **tables: Sequence[str]) -> None:
        """Print one record. Each name in `tables` is a field with rows or one object.

        The value of the name contains the columns.
        """
        record = to_json(row)
        if self._format is Format.JSON:
            _print_json(record)
            return
        console = _console()
        omitted = {*tables, OK_FIELD}
        console.print(_grid({name: record[name] for name in record if name not in omitted}))
        for name, columns in tables.items():
            if record.get(name):
                console.print(f"\n{name}", style="bold")
                value = record[name]
                rows = [value] if isinstance(value, dict) else value
                console.print(_table(rows, columns))

    def print_json_line(self, value: object) -> None:
        """Print JSON as one line, whatever the format is."""
        typer.echo(json_text(value, is_line=True))

    def print_message(self, message: str) -> None:
        """Print a message to stderr, after the name of the program."""
        typer.echo(f"harebell: {printable(message)}", err=True)


def to_json(row: Row) -> dict[str, Any]:
    """Return the JSON value of a row. A view has no field `ok`, which is always true."""
    if not isinstance(row, Message):
        return dict(row)
    exclude = {OK_FIELD} if isinstance(row, ViewResponse) else None
    return row.model_dump(mode="json", by_alias=True, exclude=exclude)


def error_line(field: str | None, reason: str, code: str) -> str:
    """Return an error as one line: the field, the reason and the code."""
    path = f"{field}: " if field else ""
    return f"{path}{reason} ({code})"


def error_line_of(error: HarebellError) -> str:
    """Return an error as one line."""
    return error_line(error.field, error.reason, error.code)


def printable(text: str) -> str:
    """Escape the line ends and control characters of a text, which could change the terminal.

    A line end could otherwise add a false row to a table.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_text(value: object, *, is_line: bool = False) -> str:
    """Return JSON for stdout: in ASCII for a terminal, which characters beyond ASCII may change."""
    if sys.stdout.isatty():
        return json.dumps(value, indent=None if is_line else 2, default=str)
    return orjson.dumps(value, option=0 if is_line else orjson.OPT_INDENT_2).decode()


def _console() -> Console:
    return Console(file=sys.stdout, width=WIDTH, highlight=False)


def _print_json(value: object) -> None:
    typer.echo(json_text(value))


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " ").replace(".", " "))
    for row in rows:
        table.add_row(*(_cell(column, _value(row, column)) for column in columns))
    return table


def _value(row: Mapping[str, Any], column: str) -> object:
    """Return the field of the row, or of its object if the name of the column has a dot."""
    name, _, inner = column.partition(".")
    value = row.get(name)
    return value.get(inner) if inner and isinstance(value, dict) else value


def _grid(record: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    for name, value in record.items():
        grid.add_row(name.replace("_", " "), _cell(name, value))
    return grid


def _cell(name: str, value: object) -> Text:
    if value is None or value in ([], {}):
        return Text(EMPTY_CELL)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Text(printable(", ".join(value)))
    if isinstance(value, list) and all(_has_text(item) for item in value):
        return Text(printable("; ".join(item[TEXT_FIELD] for item in value)))
    if _has_text(value):
        return Text(printable(value[TEXT_FIELD]))
    if not isinstance(value, str):
        lines = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode().split("\n")
        return Text("\n".join(map(printable, lines)))  # JSON escapes the line ends in its texts
    is_state = name.endswith("state")
    return Text(printable(value), style=STATE_STYLES.get(value, "") if is_state else "")


def _has_text(item: object) -> TypeGuard[dict[str, str]]:
    return isinstance(item, dict) and TEXT_FIELD in item
