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
from harebell.contract.queries import MAX_PARKED

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
PARKED_COLUMNS: Final = ("parked_at", "reason", "type", "routing_key", "message_id", "size")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedOptions:
    """The options of `dlq parked`."""

    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            max=MAX_PARKED,
            help=f"Print at most this number of messages (1 to {MAX_PARKED}).",
        ),
    ] = 20


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


@command(app, "parked")
async def parked(session: Session, options: ParkedOptions) -> ExitCode:
    """Print the dead letters that cannot be stored, the oldest first.

    The command needs a login of an operator. JSON output also has the first part of each body.
    """
    async with session.connect() as client:
        view = await client.parked_dead_letters(limit=options.limit)
    session.output.print_rows(view.messages, PARKED_COLUMNS, empty="No dead letter is parked.")
    if view.total > len(view.messages):
        session.output.print_message(f"{view.total - len(view.messages)} further messages.")
    return exit_code_of_many(done=len(view.messages))
