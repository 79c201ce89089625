"""`harebell dlq edit`: another target for a dead run, before its replay."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from harebell.cli.arguments.assignments import apply_assignments
from harebell.cli.dlq.dead_letters import DeadLetterId
from harebell.cli.dlq.output import print_results
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import Note
from harebell.cli.framework.session import Session

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOptions:
    """The options of `dlq edit`."""

    id: DeadLetterId
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set this field of the target, such as http.json.amount=3 (JSON or text).",
        ),
    ] = None
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--file", "-f", metavar="FILE|-", help="Read the whole target (JSON)."),
    ] = None
    note: Note = None


@command(app, "edit")
async def edit(session: Session, options: EditOptions) -> ExitCode:
    """Replace a dead letter by a copy with another target, and print the id of the copy."""
    async with session.connect() as client:
        dead_letter = await client.dead_letter(options.id)
        current: dict[str, Any] = dead_letter.payload.get("target", {})
        target = apply_assignments(
            options.assignments or [], options.file, base=None if options.file else current
        )
        response = await client.edit(options.id, target, note=options.note)
    return print_results(session, response)
