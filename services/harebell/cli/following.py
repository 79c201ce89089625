"""Watching a replay of many to its end; the bar is drawn on stderr, and only on a terminal."""

import asyncio
import sys
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harebell.cli.exits import ExitCode
from harebell.client import Client

EVERY: Final = 0.5  # seconds between looks
OVER: Final = ("done", "aborted")
COUNTS: Final = "[green]{task.fields[succeeded]} well[/] [red]{task.fields[failed]} failed[/]"


async def follow_replay_job(harebell: Client, job: UUID | str) -> dict[str, Any]:
    """Until it is over, however long that takes; ^C ends the watching, not the replay."""
    with _bar() as bar:
        task = bar.add_task("replay", total=None, succeeded=0, failed=0)
        while (shown := await harebell.replay_job(job))["state"] not in OVER:
            _draw(bar, task, shown)
            await asyncio.sleep(EVERY)
        _draw(bar, task, shown)
    return shown


def exit_code_of_replay_job(shown: dict[str, Any]) -> ExitCode:
    if shown["state"] == "aborted":
        return ExitCode.FAILED
    return ExitCode.PARTIAL if shown["failed"] or shown["refused"] else ExitCode.DONE


def _bar() -> Progress:
    return Progress(
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TextColumn(COUNTS), TimeElapsedColumn()),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
    )


def _draw(bar: Progress, task: Any, shown: dict[str, Any]) -> None:  # noqa: ANN401  # rich's id
    over = shown["refused"] + shown["succeeded"] + shown["failed"]
    bar.update(
        task,
        description=shown["state"],
        total=shown["total"],
        completed=over,
        succeeded=shown["succeeded"],
        failed=shown["failed"],
    )
