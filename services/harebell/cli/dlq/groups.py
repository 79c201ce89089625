"""`harebell dlq groups`: failure groups, the dead letters with the same failure."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.arguments.values import future_time
from harebell.cli.dlq.output import print_results
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import DEFAULT_LIMIT, Limit, Note
from harebell.cli.framework.session import Session

app = typer.Typer()

COLUMNS: Final = (
    "id",
    "state",
    "open",
    "dead_letters",
    "trend",
    "first_at",
    "last_at",
    "target",
    "error_code",
    "message",
    "note",
)

GroupIds: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Name the failure groups (ids)."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListOptions:
    """The options of `dlq groups list`."""

    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Filter failure groups by state (open, muted, archived or all).",
        ),
    ] = "open"
    limit: Limit = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNoteOptions:
    """The options of `dlq groups note`."""

    id: Annotated[str, typer.Argument(metavar="ID", help="Name the failure group (id).")]
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Replace the note of the group by this text.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMuteOptions:
    """The options of `dlq groups mute`."""

    ids: GroupIds
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Mute until this time (ISO 8601, or a duration from now).",
        ),
    ]
    note: Note = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The options of `dlq groups archive` and `dlq groups reopen`."""

    ids: GroupIds
    note: Note = None


@command(app, "list")
async def list_groups(session: Session, options: GroupListOptions) -> ExitCode:
    """List the failure groups, the latest failure first."""
    async with session.connect() as client:
        groups = client.failure_groups(state=options.state, limit=options.limit)
        rows = [row async for row in groups]
    session.output.print_rows(rows, COLUMNS, empty="No failure group matches.")
    return exit_code_of_many(done=len(rows))


@command(app, "note")
async def note(session: Session, options: GroupNoteOptions) -> ExitCode:
    """Replace the note of a failure group."""
    async with session.connect() as client:
        response = await client.note_groups([options.id], options.text)
    return print_results(session, response)


@command(app, "mute")
async def mute(session: Session, options: GroupMuteOptions) -> ExitCode:
    """Mute failure groups, so that the list of groups and the alerts omit them for a time."""
    until = future_time(options.until, now=session.now(), field="until")
    async with session.connect() as client:
        response = await client.mute_groups(options.ids, until, note=options.note)
    return print_results(session, response)


@command(app, "archive")
async def archive(session: Session, options: GroupOptions) -> ExitCode:
    """Archive failure groups until they fail again. Their dead letters remain unchanged."""
    async with session.connect() as client:
        response = await client.archive_groups(options.ids, note=options.note)
    return print_results(session, response)


@command(app, "reopen")
async def reopen(session: Session, options: GroupOptions) -> ExitCode:
    """Reopen failure groups that are muted or archived."""
    async with session.connect() as client:
        response = await client.reopen_groups(options.ids, note=options.note)
    return print_results(session, response)
