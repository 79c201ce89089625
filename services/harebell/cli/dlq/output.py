"""The output of dead letter commands: results, dead letters, and the progress of a replay job."""

import asyncio
import base64
import sys
from typing import Any, Final
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
from harebell.client import (
    Client,
    DeadLetterDetail,
    DeadLetterResponse,
    ReplayJobDetail,
    ReplayJobResponse,
)

COLUMNS: Final = (
    "id",
    "key",
    "run_id",
    "reason",
    "error_code",
    "attempts",
    "dead_at",
    "state",
)
RESULT_COLUMNS: Final = ("id", "status")
# The results of a command that did what the user requested.
DONE_RESULTS: Final = (
    "replayed",
    "discarded",
    "edited",
    "imported",
    "already_present",
    "noted",
    "muted",
    "archived",
    "open",
)
NOT_FOUND: Final = "not_found"
UNCHANGED: Final = "unchanged"
POLL_INTERVAL: Final = 0.5  # seconds between two queries for the progress of a replay job
FINISHED_STATES: Final = ("done", "aborted")
ABORTED: Final = "aborted"
COUNTS: Final = "[green]{task.fields[succeeded]} succeeded[/] [red]{task.fields[failed]} failed[/]"
MAX_BODY_SHOWN: Final = 2_000  # characters of the body of a message
RAW_FIELDS: Final = {"payload", "body", "headers"}
PAYLOAD_FIELDS: Final = ("target", "version", "type", "routing_key", "size", "headers")


def print_results(session: Session, response: DeadLetterResponse) -> ExitCode:
    """Print the result of each dead letter or failure group, and return the exit code."""
    rows = [{"id": id_, "status": status} for id_, status in response.results.items()]
    session.output.print_rows(rows, RESULT_COLUMNS)
    statuses = list(response.results.values())
    done = sum(status in DONE_RESULTS for status in statuses)
    missing = statuses.count(NOT_FOUND)
    return exit_code_of_many(done=done, missing=missing, failed=len(statuses) - done - missing)


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


def render_dead_letter(dead_letter: DeadLetterDetail) -> dict[str, Any]:
    """Return a dead letter for people: the attempts of a run, or the body of a message as text."""
    payload = dead_letter.payload
    shown = dead_letter.model_dump(mode="json", exclude=RAW_FIELDS)
    shown |= {name: payload[name] for name in PAYLOAD_FIELDS if name in payload}
    if "attempts" in payload:
        shown["attempts"] = payload["attempts"]
    if dead_letter.body is not None:
        text = base64.b64decode(dead_letter.body).decode(errors="backslashreplace")
        shown["body"] = text[:MAX_BODY_SHOWN]
    return shown


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
