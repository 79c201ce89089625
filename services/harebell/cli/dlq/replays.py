"""`harebell dlq replays`: the replay jobs, their progress, and the commands that change them."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.dlq.replay_progress import (
    exit_code_of_replay_job,
    follow_replay_job,
    print_replay_job,
)
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import DEFAULT_LIMIT, Limit, Note
from harebell.cli.framework.output import to_json
from harebell.cli.framework.session import Session

app = typer.Typer()

COLUMNS: Final = (
    "id",
    "state",
    "reason",
    "total",
    "taken",
    "succeeded",
    "failed",
    "rejected",
    "actor",
    "note",
    "created_at",
    "finished_at",
)
ITEM_COLUMNS: Final = ("position", "id", "status", "outcome")

ReplayJobId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="Name the replay job (id).")
]
Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Follow the replay job to its end.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJobListOptions:
    """The options of `dlq replays list`."""

    limit: Limit = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJobGetOptions:
    """The options of `dlq replays get`."""

    id: ReplayJobId
    follow: Follow = False
    items: Annotated[
        bool, typer.Option("--items", help="Print the outcome of each dead letter.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJobChangeOptions:
    """The options of `dlq replays pause` and `dlq replays abort`."""

    id: ReplayJobId
    note: Note = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJobResumeOptions:
    """The options of `dlq replays resume`."""

    id: ReplayJobId
    note: Note = None
    follow: Follow = False


@command(app, "list")
async def list_replay_jobs(session: Session, options: ReplayJobListOptions) -> ExitCode:
    """List the replay jobs with their progress, newest first."""
    async with session.connect() as client:
        rows = [row async for row in client.replay_jobs(limit=options.limit)]
    session.output.print_rows(rows, COLUMNS, empty="No replay job exists.")
    return exit_code_of_many(done=len(rows))


@command(app, "get")
async def get(session: Session, options: ReplayJobGetOptions) -> ExitCode:
    """Print one replay job. The exit code is 1 if it was aborted and 4 if some runs failed."""
    async with session.connect() as client:
        if options.follow:
            job = await follow_replay_job(client, options.id)
        else:
            job = await client.replay_job(options.id)
        record = to_json(job)
        if options.items:
            items = client.replay_job_items(options.id)
            record["items"] = [to_json(item) async for item in items]
    session.output.print_record(record, items=ITEM_COLUMNS)
    return exit_code_of_replay_job(job)


@command(app, "pause")
async def pause(session: Session, options: ReplayJobChangeOptions) -> ExitCode:
    """Pause a replay job, so that it replays no dead letters until a resume."""
    async with session.connect() as client:
        response = await client.pause_replay_job(options.id, note=options.note)
        return await print_replay_job(session, client, response)


@command(app, "resume")
async def resume(session: Session, options: ReplayJobResumeOptions) -> ExitCode:
    """Resume a paused replay job at its next dead letter."""
    async with session.connect() as client:
        response = await client.resume_replay_job(options.id, note=options.note)
        return await print_replay_job(session, client, response, follow=options.follow)


@command(app, "abort")
async def abort(session: Session, options: ReplayJobChangeOptions) -> ExitCode:
    """Abort a replay job permanently. The remaining dead letters stay open."""
    async with session.connect() as client:
        response = await client.abort_replay_job(options.id, note=options.note)
        return await print_replay_job(session, client, response)
