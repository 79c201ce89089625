"""The output of replay job commands: the response, and the progress until the end of the job."""

import asyncio
import sys
from typing import Final
from uuid import UUID

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.session import Session
from harebell.client import Client, ReplayJobDetail, ReplayJobResponse

UNCHANGED: Final = "unchanged"
POLL_INTERVAL: Final = 0.5  # seconds between two queries for the progress of a replay job
FINISHED_STATES: Final = ("done", "aborted")
ABORTED: Final = "aborted"
COUNTS: Final = "[green]{task.fields[succeeded]} succeeded[/] [red]{task.fields[failed]} failed[/]"


async def print_replay_job(
    session: Session, client: Client, response: ReplayJobResponse, *, follow: bool = False
) -> ExitCode:
    """Print the response of a replay job command, or follow the replay job to its end."""
    if follow and response.id is not None:
        job = await follow_replay_job(client, response.id)
        session.output.print_record(job)
        return exit_code_of_replay_job(job)
    session.output.print_record(response.model_dump(mode="json", exclude_none=True))
    if response.status == UNCHANGED:
        return ExitCode.FAILED
    return exit_code_of_many(done=response.total)


async def follow_replay_job(client: Client, id_: UUID | str) -> ReplayJobDetail:
    """Return the replay job after its end. Show a progress bar on a terminal until then.

    An interrupt ends the command but not the replay job.
    """
    with _progress_bar() as bar:
        task = bar.add_task("replay", total=None, succeeded=0, failed=0)
        while (job := await client.replay_job(id_)).state not in FINISHED_STATES:
            _update(bar, task, job)
            await asyncio.sleep(POLL_INTERVAL)
        _update(bar, task, job)
    return job


def exit_code_of_replay_job(job: ReplayJobDetail) -> ExitCode:
    """Return the exit code of a replay job: 1 if it was aborted, 4 if some runs failed."""
    if job.state == ABORTED:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if job.failed or job.rejected else ExitCode.DONE


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(COUNTS),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
    )


def _update(bar: Progress, task: TaskID, job: ReplayJobDetail) -> None:
    bar.update(
        task,
        description=job.state,
        total=job.total,
        completed=job.rejected + job.succeeded + job.failed,
        succeeded=job.succeeded,
        failed=job.failed,
    )
