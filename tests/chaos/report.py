"""`python -m tests.chaos.figures FILE...`: the lines of JSON of chaos runs, as a table by row."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.chaos.result import Kind, say

Line = dict[str, Any]

COLUMNS: Final = (
    *("row", "seeds", "owed", "ran", "second attempts"),
    *("recovery p50", "recovery p99", "latest start", "kept"),
)
NUMBER: Final = re.compile(r"\d+")


def main(files: Sequence[str]) -> None:
    lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    for row in table(lines):
        say(row)


def table(lines: Iterable[Line]) -> Iterator[str]:
    """By the rows of the matrix, whatever faults there were of each; then all of them together."""
    rows: defaultdict[int, list[Line]] = defaultdict(list)
    for line in lines:
        found = NUMBER.match(line["row"])
        assert found is not None, line["row"]
        rows[int(found[0])].append(line)
    yield _row(COLUMNS)
    yield _row(["---"] * len(COLUMNS))
    for number in sorted(rows):
        yield _row(_told(str(number), rows[number]))
    yield _row(_told("all", [line for lines in rows.values() for line in lines]))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _told(name: str, lines: Sequence[Line]) -> Sequence[str]:
    recovery = sorted(line["recovery"] for line in lines)
    kept = sum(not any(line[kind] for kind in Kind) for line in lines)
    return (
        name,
        str(len({line["seed"] for line in lines})),
        *(str(sum(line[what] for line in lines)) for what in ("owed", "ran", "repeated")),
        f"{median(recovery):.1f} s",
        f"{recovery[ceil(0.99 * len(recovery)) - 1]:.1f} s",
        f"{max(line['lateness'] for line in lines):.2f} s",
        f"{kept} of {len(lines)}",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
