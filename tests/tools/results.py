"""The command `python -m tests.tools.results`: the tables of results, from lines of JSON.

A page contains two comments around each table, which no reader sees:

* `<!-- results FILE SECTION table=1 columns="a;b" rows="c;d" -->`
* `<!-- end of results -->`

The command writes the table between both. `rows` selects rows by the text of their first column.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = ("performance.md", "reliability.md")
END: Final = "<!-- end of results -->"
_REGION: Final = re.compile(rf"(<!-- results (.+?) -->\n)(.*?)({re.escape(END)})", re.DOTALL)

Row = Mapping[str, str]


def rows_of(file: Path, section: str, number: int) -> list[Row]:
    """Return the rows of one table. Raise `ValueError` if the file has no such table."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found = [
        line["row"] for line in lines if line["section"] == section and line.get("table") == number
    ]
    if not found:
        raise ValueError(f"The file {file} has no table {number} in the section {section!r}.")
    return found


def rendered(page: str) -> str:
    """Return the page with each table of results written from its file."""
    return _REGION.sub(lambda found: f"{found[1]}\n{_table(found[2])}\n\n{found[4]}", page)


def _table(comment: str) -> str:
    name, section, *words = shlex.split(comment)
    options = dict(word.partition("=")[::2] for word in words)
    rows = rows_of(DOCS / "data" / name, section, int(options.get("table", "1")))
    columns = _names(options.get("columns")) or list(rows[0])
    selected = list(_selected(rows, _names(options.get("rows"))))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row[each] for each in columns) + " |" for row in selected]
    return "\n".join(lines)


def _names(option: str | None) -> list[str]:
    return option.split(";") if option else []


def _selected(rows: list[Row], wanted: list[str]) -> Iterator[Row]:
    """Yield the wanted rows in their order, or every row. Raise `ValueError` for a missing row."""
    if not wanted:
        yield from rows
    by_name = {next(iter(row.values())): row for row in rows}
    for name in wanted:
        if name not in by_name:
            raise ValueError(f"The table has no row {name!r}.")
        yield by_name[name]


def write() -> None:
    """Write the tables of every page with results."""
    for name in PAGES:
        path = DOCS / name
        path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
