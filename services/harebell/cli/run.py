"""`harebell run`: the runs of schedules, and the commands for one run."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.arguments.schedule_ref import Id, Key
from harebell.cli.arguments.values import optional_past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import (
    DEFAULT_LIMIT,
    Limit,
    NameFilter,
    Note,
    Owner,
    RequestId,
    State,
    Tag,
)
from harebell.cli.framework.session import Session
from harebell.cli.run_progress import follow_run
from harebell.contract.commands import Resolution

app = typer.Typer()

COLUMNS: Final = (
    "run_id",
    "key",
    "due_at",
    "started_at",
    "late_ms",
    "attempt",
    "state",
    "reason",
    "outcome",
    "next_attempt_at",
)
ATTEMPT_COLUMNS: Final = (
    "replay_number",
    "number",
    "started_at",
    "finished_at",
    "duration_ms",
    "outcome",
    "is_failed_probe",
    "error_code",
    "http_status",
    "error",
    "lease_holder",
)
CANCELLED: Final = "cancelled"
SUCCEEDED: Final = "succeeded"

RunId: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN_ID", help="Name the run (id, as `run list` prints it).")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListOptions:
    """The options of `run list`."""

    key: Key = None
    id: Id = None
    tag: Tag = None
    owner: Owner = None
    name: NameFilter = None
    state: State = None
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome", metavar="OUTCOME", help="Filter runs by the outcome of the last attempt."
        ),
    ] = None
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason", metavar="REASON", help="Filter runs by reason, such as paused or missed."
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Filter runs from this scheduled time "
            "(ISO 8601, or a duration ago, default: 24h, or 30d before --until).",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Filter runs before this scheduled time (ISO 8601, or a duration ago).",
        ),
    ] = None
    limit: Limit = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGetOptions:
    """The options of `run get`."""

    run_id: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWatchOptions:
    """The options of `run watch`."""

    run_id: RunId
    every: Annotated[
        float,
        typer.Option(
            "--every",
            min=0.1,
            metavar="SECONDS",
            help="Wait this long between two queries (seconds).",
        ),
    ] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelOptions:
    """The options of `run cancel`."""

    run_id: RunId
    note: Note = None
    request_id: RequestId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResolveOptions:
    """The options of `run resolve`."""

    run_id: RunId
    resolution: Annotated[
        Resolution, typer.Option("--as", help="Resolve the run with this outcome.")
    ]
    note: Note = None
    request_id: RequestId = None


@command(app, "list")
async def list_runs(session: Session, options: RunListOptions) -> ExitCode:
    """List the runs that match all filters, newest first."""
    now = session.now()
    since = optional_past_time(options.since, now=now, field="since")
    until = optional_past_time(options.until, now=now, field="until")
    async with session.connect() as client:
        runs = client.runs(
            key=options.key,
            id=options.id,
            tag=options.tag,
            owner=options.owner,
            name=options.name,
            state=options.state,
            outcome=options.outcome,
            reason=options.reason,
            since=since,
            until=until,
            limit=options.limit,
        )
        rows = [row async for row in runs]
    session.output.print_rows(rows, COLUMNS, empty="No run matches.")
    return exit_code_of_many(done=len(rows))


@command(app, "get")
async def get(session: Session, options: RunGetOptions) -> ExitCode:
    """Print one run with its attempts."""
    async with session.connect() as client:
        session.output.print_record(await client.run(options.run_id), attempts=ATTEMPT_COLUMNS)
    return ExitCode.DONE


@command(app, "watch")
async def watch(session: Session, options: RunWatchOptions) -> ExitCode:
    """Follow one run until its end, with its progress. The exit code is 1 unless it succeeds."""
    async with session.connect() as client:
        run = await follow_run(client, options.run_id, every=options.every)
    session.output.print_record(run, attempts=ATTEMPT_COLUMNS)
    return ExitCode.DONE if run.state == SUCCEEDED else ExitCode.FAILED


@command(app, "cancel")
async def cancel(session: Session, options: RunCancelOptions) -> ExitCode:
    """Cancel a run that has not started. The exit code is 1 if an executor has claimed the run."""
    async with session.connect() as client:
        response = await client.cancel_run(
            options.run_id, note=options.note, request_id=options.request_id
        )
    session.output.print_record(response)
    if response.status == CANCELLED:
        return ExitCode.DONE
    session.output.print_message(
        f"The run {options.run_id} is not cancelled: {response.status} ({response.state})."
    )
    return ExitCode.FAILED


@command(app, "resolve")
async def resolve(session: Session, options: RunResolveOptions) -> ExitCode:
    """Resolve an unresolved run. Its schedule continues after its last unresolved run."""
    async with session.connect() as client:
        response = await client.resolve_run(
            options.run_id,
            options.resolution,
            note=options.note,
            request_id=options.request_id,
        )
    session.output.print_record(response)
    return ExitCode.DONE
