"""`harebell dlq list`, `get` and `discard`."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.dlq.filters import (
    DEFAULT_STATE,
    DeadLetterFilterOptions,
    DeadLetterStateName,
    dead_letter_filter,
)
from harebell.cli.dlq.output import COLUMNS, print_results, render_dead_letter
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import DEFAULT_LIMIT, Format, Limit, Note
from harebell.cli.framework.session import Session

app = typer.Typer()

ATTEMPT_COLUMNS: Final = (
    "replay_number",
    "number",
    "started_at",
    "finished_at",
    "lease_holder",
    "outcome",
    "http_status",
    "error_code",
    "error",
)
REPLAY_COLUMNS: Final = ("replay_number", "at", "actor", "note", "run_state")

DeadLetterId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="Name the dead letter (id, as `dlq list` prints it).")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterListOptions(DeadLetterFilterOptions):
    """The options of `dlq list`."""

    state: DeadLetterStateName = DEFAULT_STATE
    limit: Limit = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGetOptions:
    """The options of `dlq get`."""

    id: DeadLetterId


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOptions:
    """The options of `dlq discard`."""

    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID", help="Name the dead letters (ids)."),
    ]
    note: Note = None


@command(app, "list")
async def list_dead_letters(session: Session, options: DeadLetterListOptions) -> ExitCode:
    """List the dead letters that match all filters, newest first."""
    fields = dead_letter_filter(options, session.now())
    async with session.connect() as client:
        dead_letters = client.dead_letters(state=options.state, limit=options.limit, **fields)
        rows = [row async for row in dead_letters]
    session.output.print_rows(rows, COLUMNS, empty="No dead letter matches.")
    return exit_code_of_many(done=len(rows))


@command(app, "get", alias="show")
async def get(session: Session, options: DeadLetterGetOptions) -> ExitCode:
    """Print one dead letter with its attempts and replays. JSON output has every field."""
    async with session.connect() as client:
        dead_letter = await client.dead_letter(options.id)
    is_json = session.options.output is Format.JSON
    session.output.print_record(
        dead_letter if is_json else render_dead_letter(dead_letter),
        attempts=ATTEMPT_COLUMNS,
        replay_history=REPLAY_COLUMNS,
    )
    return ExitCode.DONE


@command(app, "discard", alias="drop")
async def discard(session: Session, options: DiscardOptions) -> ExitCode:
    """Discard dead letters without a replay. Their records remain until the retention ends."""
    async with session.connect() as client:
        response = await client.discard(options.ids, note=options.note)
    return print_results(session, response)
