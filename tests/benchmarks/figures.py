"""Figures: lines of JSON, and a table of the minimum, the median and the maximum."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from tests.benchmarks.machine import iteration_ns

Line = Mapping[str, Any]

MACHINE: Final = "machine"  # a separate line, which the table omits
TITLE_FIELDS: Final = (
    "workload",
    "peer",
    "mode",
    "n",
    "rate",
    "role",
    "processes",
    "stored",
    "snapshot",
    "command",
)  # fields of a title
# The columns of the table, each with the figures that it may contain.
MAIN_FIGURES: Final[Mapping[str, Sequence[str]]] = {
    "per s": ("runs_per_s", "per_s"),
    "p50 ms": ("late_ms.p50", "publish_to_start_ms.p50", "answer_ms.p50", "done_ms.p50"),
    "p99 ms": ("late_ms.p99", "publish_to_start_ms.p99", "answer_ms.p99", "done_ms.p99"),
    "CPU us": ("cpu_us_per_run.total", "cpu_us_per_schedule.total"),
}
MAX_FURTHER: Final = 24  # characters of the last column
SIGNIFICANT_DIGITS: Final = 4  # significant digits in the table


@dataclass(frozen=True)
class Report:
    """The lines of all samples, for the file and for the table at the end.

    Each line contains the speed of the machine after the sample, or the mean speed if `figures`
    contains the mean.
    """

    lines: list[Line]
    file: Path | None
    console: Console

    def add(self, workload: str, **figures: Any) -> None:  # JSON
        line = {"workload": workload, "python_ns": iteration_ns(), **figures}
        self.lines.append(line)
        text = orjson.dumps(line).decode()
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)
        if self.file is not None:
            with self.file.open("a") as file:
                file.write(text + "\n")

    def table(self) -> Table:
        """Return one line for each workload, with medians, for a terminal of 100 columns.

        The lines of JSON contain every figure and every sample.
        """
        table = Table("workload", "samples", *MAIN_FIGURES, "further", title="Medians")
        groups: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            groups[_title(line)].append(line)
        for title, group in groups.items():
            if title != MACHINE:
                medians = {name: median(values) for name, values in _columns(group)}
                table.add_row(title, str(len(group)), *_cells(medians))
        return table


def lateness(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles of the lateness of starts, in milliseconds."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 3)

    return {"min": at(0), "p50": at(0.5), "p99": at(0.99), "max": at(1)}


def _title(line: Line) -> str:
    return " ".join(str(line[name]) for name in TITLE_FIELDS if name in line)


def _columns(group: Sequence[Line]) -> Iterator[tuple[str, list[float]]]:
    flat = [dict(_flat(line)) for line in group]
    for name in flat[0]:
        values = [each[name] for each in flat if name in each]
        is_of_one_process = name.startswith("window") and not name.endswith("total")
        if name not in TITLE_FIELDS and not is_of_one_process:
            yield name, values


def _cells(medians: Mapping[str, float]) -> Iterator[str]:
    """Yield the main figures, and as many names of other figures as fit without being cut."""
    shown, has_main = {"python_ns"}, False
    for names in MAIN_FIGURES.values():
        name = next((each for each in names if each in medians), None)
        shown.add(name or "")
        has_main |= name is not None
        yield "" if name is None else _short(medians[name])
    further = ""
    for name, value in medians.items():
        figure = f"{name}={_short(value)}"
        is_part = "." in name and has_main
        if name not in shown and not is_part and len(further) + len(figure) < MAX_FURTHER:
            further = f"{further} {figure}".strip()
    yield further


def _flat(line: Line, prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def _short(value: float) -> str:
    if abs(value) >= 10**SIGNIFICANT_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.{SIGNIFICANT_DIGITS}g}"
