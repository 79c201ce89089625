"""`harebell schedule put`, `get`, `list`, `patch`, `delete`, `trigger`, `skip` and `backfill`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import typer

from harebell.cli.arguments.assignments import apply_assignments
from harebell.cli.arguments.documents import read_document
from harebell.cli.arguments.schedule_ref import ScheduleRefOptions
from harebell.cli.arguments.values import future_time, optional_future_time, past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import (
    DEFAULT_LIMIT,
    DryRun,
    Limit,
    NameFilter,
    Note,
    Owner,
    RequestId,
    Reveal,
    State,
    Tag,
)
from harebell.cli.framework.output import Output, error_line
from harebell.cli.framework.session import Session
from harebell.client import ErrorResponse, ScheduleResponse
from harebell.contract.commands import MAX_BACKFILL
from harebell.contract.policy import Overlap
from harebell.contract.types import instant_text
from harebell.contract.views import ScheduledVersion

app = typer.Typer()

COLUMNS: Final = (
    "key",
    "id",
    "state",
    "result",
    "next_at",
    "last_run.scheduled_for",
    "last_run.state",
    "executions",
    "failures",
    "owner",
    "pool",
    "priority",
    "version",
    "tags",
)
RESPONSE_COLUMNS: Final = ("key", "id", "status", "state", "version", "next_at")

ExpectedVersion: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--expected-version",
        min=1,
        metavar="N",
        help="Reject the change if the schedule has another version.",
    ),
]


Revive: TypeAlias = Annotated[
    bool, typer.Option("--revive", help="Start a cancelled or completed schedule again.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOptions:
    """The options of `schedule put`."""

    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE|-", help="Read this file (JSON, - for standard input)."),
    ]
    revive: Revive = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleGetOptions(ScheduleRefOptions):
    """The options of `schedule get`."""

    reveal: Reveal = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleListOptions:
    """The options of `schedule list`."""

    tag: Tag = None
    owner: Owner = None
    name: NameFilter = None
    state: State = None
    limit: Limit = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchOptions(ScheduleRefOptions):
    """The options of `schedule patch`."""

    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set this field, such as retry.max_attempts=3 (JSON or text, null: the default).",
        ),
    ] = None
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--file", "-f", metavar="FILE|-", help="Read the changes (JSON merge patch)."),
    ] = None
    expected_version: ExpectedVersion = None
    effective_at: Annotated[
        str | None,
        typer.Option(
            "--effective-at",
            metavar="TIME",
            help="Apply the change at this time "
            "(ISO 8601, or a duration from now, default: at once).",
        ),
    ] = None
    revive: Revive = False
    note: Note = None
    request_id: RequestId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions(ScheduleRefOptions):
    """The options of `schedule delete`."""

    note: Note = None
    request_id: RequestId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipOptions(ScheduleRefOptions):
    """The options of `schedule skip`."""

    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Skip this scheduled time (ISO 8601 with offset, or a duration from now).",
        ),
    ]
    note: Note = None
    request_id: RequestId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions(ScheduleRefOptions):
    """The options of `schedule trigger`."""

    overlap: Annotated[
        Overlap | None,
        typer.Option(
            "--overlap", help="Use this overlap policy (default: the policy of the schedule)."
        ),
    ] = None
    note: Note = None
    request_id: RequestId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions(ScheduleRefOptions):
    """The options of `schedule backfill`."""

    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Begin at this time (ISO 8601, or a duration ago)."
        ),
    ]
    end: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME", help="End at this time (ISO 8601, or a duration ago)."
        ),
    ]
    max_runs: Annotated[
        int | None,
        typer.Option(
            "--max",
            min=1,
            max=MAX_BACKFILL,
            metavar="N",
            help="Reject the backfill if it needs more runs (default: 100).",
        ),
    ] = None
    dry_run: DryRun = False
    note: Note = None
    request_id: RequestId = None


@command(app, "put")
async def put(session: Session, options: PutOptions) -> ExitCode:
    """Create or replace schedules from a file (one object, or an array of up to 500).

    The command rejects a cancelled or completed schedule without --revive.
    """
    document = read_document(options.file)
    if options.revive:
        items = document if isinstance(document, list) else [document]
        for item in items:
            item["revive"] = True
    async with session.connect() as client:
        if isinstance(document, dict):
            return print_schedule(session.output, await client.put(document))
        return _print_schedules(session.output, await client.put_many(document))


@command(app, "get")
async def get(session: Session, options: ScheduleGetOptions) -> ExitCode:
    """Print one schedule with its definition, its state, its next time and its last run."""
    async with session.connect() as client:
        schedule = await client.schedule(reveal=options.reveal, **options.ref)
        session.output.print_record(schedule)
    return ExitCode.DONE


@command(app, "list")
async def list_schedules(session: Session, options: ScheduleListOptions) -> ExitCode:
    """List the schedules that match all filters, newest first."""
    async with session.connect() as client:
        schedules = client.schedules(
            tag=options.tag,
            owner=options.owner,
            name=options.name,
            state=options.state,
            limit=options.limit,
        )
        rows = [row async for row in schedules]
    session.output.print_rows(rows, COLUMNS, empty="No schedule matches.")
    return exit_code_of_many(done=len(rows))


@command(app, "patch")
async def patch(session: Session, options: PatchOptions) -> ExitCode:
    """Change some fields of a schedule and leave the other fields unchanged."""
    ref = options.ref
    changes = apply_assignments(options.assignments or [], options.file)
    now = session.now()
    effective_at = optional_future_time(options.effective_at, now=now, field="effective_at")
    async with session.connect() as client:
        response = await client.patch(
            changes,
            **ref,
            expected_version=options.expected_version,
            effective_at=effective_at,
            revive=options.revive,
            note=options.note,
            request_id=options.request_id,
        )
    return print_schedule(session.output, response)


@command(app, "delete")
async def delete(session: Session, options: DeleteOptions) -> ExitCode:
    """Remove an ended schedule from the lists. Its versions and its runs stay readable.

    The command rejects a schedule that is neither cancelled nor completed.
    """
    ref = options.ref
    async with session.connect() as client:
        response = await client.delete(**ref, note=options.note, request_id=options.request_id)
    return print_schedule(session.output, response)


@command(app, "trigger")
async def trigger(session: Session, options: TriggerOptions) -> ExitCode:
    """Stage one manual run at once, in addition to the recurrence."""
    ref = options.ref
    async with session.connect() as client:
        response = await client.trigger(
            **ref, overlap=options.overlap, note=options.note, request_id=options.request_id
        )
    return print_schedule(session.output, response)


@command(app, "skip")
async def skip(session: Session, options: SkipOptions) -> ExitCode:
    """Skip the run of one scheduled time."""
    ref = options.ref
    at = future_time(options.at, now=session.now(), field="at")
    async with session.connect() as client:
        response = await client.skip(at, **ref, note=options.note, request_id=options.request_id)
    return print_schedule(session.output, response)


@command(app, "backfill")
async def backfill(session: Session, options: BackfillOptions) -> ExitCode:
    """Stage manual runs for past scheduled times that have no run."""
    ref = options.ref
    now = session.now()
    start = past_time(options.start, now=now, field="from")
    end = past_time(options.end, now=now, field="to")
    async with session.connect() as client:
        response = await client.backfill(
            start,
            end,
            **ref,
            max_runs=options.max_runs,
            dry_run=options.dry_run,
            note=options.note,
            request_id=options.request_id,
        )
    print_schedule(session.output, response)
    return exit_code_of_many(done=len(response.runs or []))


def print_schedule(output: Output, response: ScheduleResponse) -> ExitCode:
    """Print the response of a command for one schedule.

    A message follows for each run that the command did not stop, for each superseded version and
    for each warning.
    """
    output.print_record(_without_none(response))
    print_in_flight(output, response.in_flight)
    print_superseded(output, response.supersedes)
    print_warnings(output, response.warnings)
    return ExitCode.DONE


def print_in_flight(output: Output, runs: Sequence[str]) -> None:
    """Print a message for each run that an executor had claimed before the command."""
    for run in runs:
        output.print_message(f"An executor had already claimed the run {run}.")


def print_superseded(output: Output, versions: Sequence[ScheduledVersion]) -> None:
    """Print a message for each pending version that the command has replaced."""
    for each in versions:
        at = instant_text(each.effective_at)
        output.print_message(f"The pending version {each.version} of {at} is superseded.")


def print_warnings(output: Output, warnings: Sequence[str] | None) -> None:
    """Print a message for each warning of a response."""
    for warning in warnings or ():
        output.print_message(f"Warning: {warning}")


def _print_schedules(
    output: Output, responses: Sequence[ScheduleResponse | ErrorResponse]
) -> ExitCode:
    stored = [each for each in responses if isinstance(each, ScheduleResponse)]
    errors = [each.error for each in responses if isinstance(each, ErrorResponse)]
    output.print_rows([_without_none(each) for each in responses], RESPONSE_COLUMNS)
    for response in stored:
        print_in_flight(output, response.in_flight)
        print_superseded(output, response.supersedes)
        print_warnings(output, response.warnings)
    for error in errors:
        output.print_message(error_line(error.field, error.reason, error.code))
    return exit_code_of_many(done=len(stored), failed=len(errors))


def _without_none(response: ScheduleResponse | ErrorResponse) -> dict[str, Any]:
    return response.model_dump(mode="json", exclude_none=True)
