"""`harebell dlq`: the desk where a person works at what Harebell gave up."""

from typing import Annotated, Final

import typer

from harebell.cli.dlq.filters import (
    NewerThan,
    OfError,
    OfGroup,
    OfKey,
    OfTag,
    OlderThan,
    Replayed,
    dead_letter_filter,
)
from harebell.cli.dlq.output import print_results, render_dead_letter
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import LIMIT, Limit, Note
from harebell.cli.framework.output import Format
from harebell.cli.framework.session import Session

app = typer.Typer(help="List, show, replay and drop dead letters.", no_args_is_help=True)

ROW: Final = ("id", "key", "run_id", "reason", "error_code", "attempts", "dead_at", "state")
ATTEMPT: Final = (
    *("replay_number", "number", "started_at", "finished_at", "lease_holder"),
    *("outcome", "http_status", "error_code", "error"),
)
HISTORY: Final = ("replay_number", "at", "actor", "note", "run_state")

LetterId = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.")]
LetterIds = Annotated[list[str], typer.Argument(metavar="ID", help="As `dlq list` shows them.")]
DeskState = Annotated[
    str, typer.Option("--state", help="open, replayed, resolved, dropped, edited or all.")
]


@command(app, "list")
async def list_dead_letters(
    session: Session,
    *,
    state: DeskState = "open",
    group: OfGroup = None,
    key: OfKey = None,
    tag: OfTag = None,
    error: OfError = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    replayed: Replayed = None,
    limit: Limit = LIMIT,
) -> ExitCode:
    """List dead letters, newest first."""
    only = dead_letter_filter(session, group, key, tag, error, older_than, newer_than, replayed)
    async with session.harebell() as harebell:
        rows = [row async for row in harebell.dead_letters(state=state, limit=limit, **only)]
    session.output.rows(rows, ROW)
    return exit_code_of_many(done=len(rows))


@command(app, "show")
async def show(session: Session, letter: LetterId) -> ExitCode:
    """Show one as a person reads it; with -o json, all there is."""
    async with session.harebell() as harebell:
        whole = await harebell.dead_letter(letter)
    told = whole if session.options.output is Format.JSON else render_dead_letter(whole)
    session.output.record(told, attempts=ATTEMPT, replay_history=HISTORY)
    return ExitCode.DONE


@command(app, "drop")
async def drop(session: Session, letters: LetterIds, note: Note = None) -> ExitCode:
    """Take each off the desk; the record stays."""
    async with session.harebell() as harebell:
        return print_results(session, await harebell.discard(letters, note=note))
