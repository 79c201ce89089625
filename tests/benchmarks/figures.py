"""Figures: lines of JSON for machines, and a table of the least, the median and the most."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from tests.benchmarks.machine import turn_ns

Line = Mapping[str, Any]

MACHINE: Final = "machine"  # a line of its own, and none of the table
NAMING: Final = ("workload", "peer", "n", "rate", "role", "processes", "stored")  # of a title
SHOWN: Final = 4  # significant places of the table


@dataclass(frozen=True)
class Report:
    """Every line as it comes, kept for the table at the end; with how fast the machine is.

    That is its speed now, where `figures` do not say what it was meanwhile.
    """

    lines: list[Line]
    file: Path | None
    console: Console

    def add(self, workload: str, **figures: Any) -> None:  # JSON
        line = {"workload": workload, "python_ns": turn_ns(), **figures}
        self.lines.append(line)
        text = orjson.dumps(line).decode()
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)
        if self.file is not None:
            with self.file.open("a") as file:
                file.write(text + "\n")

    def table(self) -> Table:
        table = Table("workload", "figure", "runs", "min", "median", "max", title="Benchmarks")
        groups: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            groups[_title(line)].append(line)
        for title, group in groups.items():
            if title == MACHINE:
                continue
            for name, values in _columns(group):
                cells = (_short(pick(values)) for pick in (min, median, max))
                table.add_row(title, name, str(len(values)), *cells)
                title = ""  # noqa: PLW2901  # said once
        return table


def lateness(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds from the due instant to the start."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 3)

    return {"min": at(0), "p50": at(0.5), "p99": at(0.99), "max": at(1)}


def _title(line: Line) -> str:
    return " ".join(str(line[name]) for name in NAMING if name in line)


def _columns(group: Sequence[Line]) -> Iterator[tuple[str, list[float]]]:
    flat = [dict(_flat(line)) for line in group]
    for name in flat[0]:
        values = [each[name] for each in flat if name in each]
        of_a_process = name.startswith("window") and not name.endswith("total")
        if name not in NAMING and not of_a_process:
            yield name, values


def _flat(line: Line, prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def _short(value: float) -> str:
    return f"{value:.{SHOWN}g}"
