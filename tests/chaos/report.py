"""`python -m tests.chaos.report FILE...`: a table by row from the JSON lines of chaos runs."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.chaos.result import FindingKind, print_line

Line = dict[str, Any]

COLUMNS: Final = (
    "row",
    "seeds",
    "expected",
    "ran",
    "second attempts",
    "recovery p50",
    "recovery p99",
    "latest start",
    "kept",
)
NUMBER: Final = re.compile(r"\d+")


def main(files: Sequence[str]) -> None:
    lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    for line in table(lines):
        print_line(line)


def table(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the lines of a table: one for each row of faults, and one for all rows together."""
    rows: defaultdict[int, list[Line]] = defaultdict(list)
    for line in lines:
        found = NUMBER.match(line["row"])
        assert found is not None, line["row"]
        rows[int(found[0])].append(line)
    yield _table_row(COLUMNS)
    yield _table_row(["---"] * len(COLUMNS))
    for number in sorted(rows):
        yield _table_row(_cells(str(number), rows[number]))
    yield _table_row(_cells("all", [line for lines in rows.values() for line in lines]))


def _table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(name: str, lines: Sequence[Line]) -> Sequence[str]:
    recovery = sorted(line["recovery"] for line in lines)
    kept = sum(not any(line[kind] for kind in FindingKind) for line in lines)
    sums = [str(sum(line[each] for line in lines)) for each in ("expected", "ran", "repeated")]
    return (
        name,
        str(len({line["seed"] for line in lines})),
        *sums,
        f"{median(recovery):.1f} s",
        f"{recovery[ceil(0.99 * len(recovery)) - 1]:.1f} s",
        f"{max(line['lateness'] for line in lines):.2f} s",
        f"{kept} of {len(lines)}",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
