"""`harebell dlq groups, note, mute, archive, reopen`: groups of the same failure."""

from typing import Annotated, Final

import typer

from harebell.cli.arguments.values import future_time
from harebell.cli.dlq.output import print_results
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import LIMIT, Limit, Note
from harebell.cli.framework.session import Session

app = typer.Typer()  # joins that of `dead_letters`

ROW: Final = (
    *("id", "state", "open", "dead_letters", "trend", "first_at", "last_at"),
    *("target", "error_code", "message", "note"),
)

Groups = Annotated[list[str], typer.Argument(metavar="GROUP", help="As `dlq groups` shows them.")]
GroupStates = Annotated[str, typer.Option("--state", help="open, muted, archived or all.")]
Until = Annotated[str, typer.Option("--until", help="An instant, or for how long (2h).")]
Words = Annotated[str, typer.Argument(metavar="TEXT", help="In place of the note before.")]
OneGroup = Annotated[str, typer.Argument(metavar="GROUP", help="As `dlq groups` shows it.")]


@command(app, "groups")
async def groups(session: Session, state: GroupStates = "open", limit: Limit = LIMIT) -> ExitCode:
    """List what fails, the same failures together, the latest first."""
    async with session.harebell() as harebell:
        rows = [row async for row in harebell.failure_groups(state=state, limit=limit)]
    session.output.rows(rows, ROW)
    return exit_code_of_many(done=len(rows))


@command(app, "note")
async def note(session: Session, group: OneGroup, text: Words) -> ExitCode:
    """Write on a group what is known of it."""
    async with session.harebell() as harebell:
        return print_results(session, await harebell.note_groups([group], text))


@command(app, "mute")
async def mute(session: Session, groups: Groups, until: Until, note: Note = None) -> ExitCode:
    """Ask for nobody until then: not in the list of groups, nor in the number that alerts see."""
    end = future_time(until, now=session.surroundings.now(), field="until")
    async with session.harebell() as harebell:
        return print_results(session, await harebell.mute_groups(groups, end, note=note))


@command(app, "archive")
async def archive(session: Session, groups: Groups, note: Note = None) -> ExitCode:
    """Put groups away until they fail again; their letters stay as they are."""
    async with session.harebell() as harebell:
        return print_results(session, await harebell.archive_groups(groups, note=note))


@command(app, "reopen")
async def reopen(session: Session, groups: Groups, note: Note = None) -> ExitCode:
    """Neither muted nor archived any more."""
    async with session.harebell() as harebell:
        return print_results(session, await harebell.reopen_groups(groups, note=note))
