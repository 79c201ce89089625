"""The progress of a run until its end: a bar on a terminal, or a line for each report."""

import asyncio
import sys
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from harebell.cli.framework.output import printable
from harebell.client import Client, RunDetail

OPEN_STATES: Final = ("staged", "running", "retrying")


async def follow_run(client: Client, run_id: str, *, every: float) -> RunDetail:
    """Return the run after its end, or when it becomes unresolved.

    Show its progress on stderr until then. An interrupt ends the command but not the run.
    """
    is_terminal = sys.stderr.isatty()
    shown = ""
    with _progress_bar(is_visible=is_terminal) as bar:
        task = bar.add_task("waiting", total=None)
        while (run := await client.run(run_id)).state in OPEN_STATES:
            text = _text(run)
            percent = None if run.progress is None else run.progress.percent
            total = None if percent is None else 100
            bar.update(task, description=text, total=total, completed=percent or 0)
            if not is_terminal and text != shown:
                sys.stderr.write(f"{text}\n")
            shown = text
            await asyncio.sleep(every)
    return run


def _text(run: RunDetail) -> str:
    text = f"{run.state}, attempt {run.attempt}"
    return text if run.progress is None else f"{text}: {printable(run.progress.text)}"


def _progress_bar(*, is_visible: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        disable=not is_visible,
    )
