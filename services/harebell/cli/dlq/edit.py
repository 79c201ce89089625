"""`harebell dlq edit`: what a dead run calls, before it is replayed."""

from typing import Annotated, Any

import typer

from harebell.cli.arguments.assignments import apply_assignments
from harebell.cli.dlq.output import print_results
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import Note
from harebell.cli.framework.session import Session

app = typer.Typer()  # joins that of `dead_letters`

TargetFile = Annotated[
    typer.FileBinaryRead | None,
    typer.Option("--file", "-f", metavar="FILE|-", help="The whole target, as JSON."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Of the target: http.json.amount=3."),
]
Letter = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.")]


@command(app, "edit")
async def edit(
    session: Session,
    *,
    letter: Letter,
    sets: Sets = None,
    file: TargetFile = None,
    note: Note = None,
) -> ExitCode:
    """Put a copy in its place that calls another target, or with other data; prints the copy."""
    async with session.harebell() as harebell:
        target: dict[str, Any] = (await harebell.dead_letter(letter))["payload"].get("target", {})
        written = apply_assignments(sets or [], file, upon=None if file else target)
        return print_results(session, await harebell.edit(letter, written, note=note))
