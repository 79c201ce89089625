"""The table of runs: live on a terminal, otherwise one line for each change."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harebell.dev.demo.sources import Runs
from harebell.dev.demo.verdict import LedgerRun
from harebell.domain.run_states import RunState

COLUMNS = ("schedule", "due (UTC)", "start", "late", "attempts", "state")
NONE = "-"
COLOURS = {
    RunState.STAGED: "dim",
    RunState.RUNNING: "cyan",
    RunState.RETRYING: "yellow",
    RunState.SUCCEEDED: "green",
    RunState.DEAD: "red",
}


class RunTable:
    """The table. Without a terminal, the output contains only changed rows."""

    def __init__(self, console: Console, titles: Mapping[str, str]) -> None:
        self._console = console
        self._titles = titles
        self._printed: dict[str, list[str]] = {}

    @contextmanager
    def live(self) -> Iterator[Callable[[Runs], None]]:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            yield self._print_changes
            return
        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda runs: live.update(self._table(runs), refresh=True)

    def _table(self, runs: Runs) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in COLUMNS:
            table.add_column(column, no_wrap=True)
        for run in runs:
            *cells, state = self._cells(run)
            table.add_row(*cells, Text(state, style=COLOURS.get(run.state, "")))
        return table

    def _print_changes(self, runs: Runs) -> None:
        for run in runs:
            cells = self._cells(run)
            if self._printed.get(run.run_id) != cells:
                self._printed[run.run_id] = cells
                name, *values = cells
                pairs = zip(COLUMNS[1:], values, strict=True)
                line = "  ".join(f"{column} {value}" for column, value in pairs)
                self._console.print(f"{name:<18}  {line}", soft_wrap=True, highlight=False)

    def _cells(self, run: LedgerRun) -> list[str]:
        suffix = ", replayed" if run.replay_number > 0 else ""
        return [
            self._titles[run.key],
            _clock(run.due_at),
            NONE if (start := _first_start(run)) is None else _clock(start),
            NONE if run.late_ms is None else f"{run.late_ms:.0f} ms",
            f"{run.attempt}{suffix}",
            run.state.value,
        ]


def _first_start(run: LedgerRun) -> datetime | None:
    """Return the start of the first attempt, or that of the latest attempt of a replay."""
    if run.late_ms is None:
        return run.started_at
    return run.due_at + timedelta(milliseconds=run.late_ms)


def _clock(time: datetime) -> str:
    time = time.astimezone(UTC)
    return f"{time:%H:%M:%S}.{time.microsecond // 1000:03d}"
